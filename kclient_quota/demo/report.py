"""What remains of a demo: summary.json and one self-contained HTML file."""

import json
from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined

from kclient_quota.demo import plots
from kclient_quota.demo.live import NAMES, rows
from kclient_quota.demo.scenes import Finding, Scene, as_json


@dataclass(frozen=True, slots=True)
class Act:
    """A scene that was played."""

    scene: Scene
    findings: list[Finding]


def summary(stage_name: str, when: str, acts: list[Act]) -> dict[str, object]:
    """Everything that was found, for programs."""
    return {"played_on": stage_name, "when": when, "scenes": [as_json(act.scene, act.findings) for act in acts]}


def write(directory: Path, stage_name: str, when: str, acts: list[Act]) -> tuple[Path, Path]:
    """Write both files into `directory` (made if it is not there) and return their paths."""
    directory.mkdir(parents=True, exist_ok=True)
    summary_path, report_path = directory / "summary.json", directory / "report.html"
    summary_path.write_text(json.dumps(summary(stage_name, when, acts), indent=2) + "\n")
    report_path.write_text(_html(stage_name, when, acts))
    return summary_path, report_path


def _html(stage_name: str, when: str, acts: list[Act]) -> str:
    environment = Environment(
        loader=PackageLoader("kclient_quota.demo", "."), autoescape=True, undefined=StrictUndefined
    )
    scenes = [
        {
            "title": act.scene.title,
            "story": act.scene.story,
            "quota_key": act.scene.quota_key,
            "quota": act.scene.quota,
            "seconds": act.scene.seconds,
            "columns": [(finding.flavour, NAMES[finding.flavour]) for finding in act.findings],
            "rows": rows(act.scene, act.findings),
            "plots": _plots(act),
        }
        for act in acts
    ]
    template = environment.get_template("report.html.j2")
    return template.render(stage=stage_name, embedded="embedded" in stage_name, when=when, scenes=scenes)


def _plots(act: Act) -> list[tuple[str, str]]:
    return [
        (
            "Throughput against the quota; the axis ends at four times the quota.",
            plots.throughput(act.scene, act.findings),
        ),
        ("What is done, against quota times time.", plots.cumulative(act.scene, act.findings)),
        ("Throttle times that the broker answered with.", plots.throttle_times(act.findings)),
        ("The longest wait of every moment.", plots.latencies(act.scene, act.findings)),
    ]
