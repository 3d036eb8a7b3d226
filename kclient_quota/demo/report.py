"""What remains of a demo: summary.json and one self-contained HTML file."""

import json
from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined

from kclient_quota.demo import loop_report, plots
from kclient_quota.demo.live import NAMES, conditions, rows
from kclient_quota.demo.loop_report import LoopAct
from kclient_quota.demo.scenes import Finding, Scene, as_json, headline, verdict
from kclient_quota.demo.spec import FLAVOURS


@dataclass(frozen=True, slots=True)
class Act:
    """A scene that was played."""

    scene: Scene
    findings: list[Finding]


def summary(stage_name: str, when: str, acts: list[Act | LoopAct]) -> dict[str, object]:
    """Everything that was found, for programs."""
    scenes = [as_json(act.scene, act.findings) if isinstance(act, Act) else loop_report.as_json(act) for act in acts]
    return {"played_on": stage_name, "when": when, "scenes": scenes}


def write(directory: Path, stage_name: str, when: str, acts: list[Act | LoopAct]) -> tuple[Path, Path]:
    """Write both files into `directory` (made if it is not there) and return their paths."""
    directory.mkdir(parents=True, exist_ok=True)
    summary_path, report_path = directory / "summary.json", directory / "report.html"
    summary_path.write_text(json.dumps(summary(stage_name, when, acts), indent=2) + "\n")
    report_path.write_text(_html(stage_name, when, acts))
    return summary_path, report_path


def _html(stage_name: str, when: str, acts: list[Act | LoopAct]) -> str:
    environment = Environment(
        loader=PackageLoader("kclient_quota.demo", "."), autoescape=True, undefined=StrictUndefined
    )
    scenes = [_section(act) if isinstance(act, Act) else _loop_section(act) for act in acts]
    template = environment.get_template("report.html.j2")
    played = [(act.scene, act.findings) for act in acts if isinstance(act, Act)]
    headlines = [(flavour, NAMES[flavour], headline(played, flavour)) for flavour in FLAVOURS] if played else []
    return template.render(
        headlines=headlines, stage=stage_name, embedded="embedded" in stage_name, when=when, scenes=scenes
    )


def _section(act: Act) -> dict[str, object]:
    scene = act.scene
    return {
        "title": scene.title,
        "story": scene.story,
        "conditions": conditions(scene),
        "verdicts": [(f.flavour, NAMES[f.flavour], verdict(scene, f)) for f in act.findings],
        "columns": [(finding.flavour, NAMES[finding.flavour]) for finding in act.findings],
        "rows": rows(scene, act.findings),
        "plots": _plots(act),
        "text": "",
    }


def _loop_section(act: LoopAct) -> dict[str, object]:
    return {
        "title": loop_report.TITLE,
        "story": loop_report.story(act.members),
        "conditions": loop_report.conditions(),
        "verdicts": [],
        "columns": loop_report.COLUMNS,
        "rows": loop_report.rows(act),
        "plots": [("Throttle times that the broker answered with.", loop_report.throttle_plot(act))],
        "text": act.closed.quotas,
    }


def _plots(act: Act) -> list[tuple[str, str]]:
    scene, findings = act.scene, act.findings
    drawn = [
        ("What is done, against what the quota allows.", plots.cumulative(scene, findings)),
        ("The longest wait that ended in every moment.", plots.latencies(scene, findings)),
        ("Throttle times that the broker answered with.", plots.throttle_times(scene, findings)),
    ]
    if scene.name != "consumers":
        drawn.append(("The price: time waited inside produce().", plots.waits(scene, findings)))
    return drawn
