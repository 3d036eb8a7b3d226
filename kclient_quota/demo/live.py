"""What is seen while the scenes play: a line for each client, redrawn a few times a second."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from rich.console import Console
from rich.live import Live
from rich.table import Table

from kclient_quota.demo.scenes import Finding, Scene, verdict
from kclient_quota.demo.spec import FLAVOURS, PLAIN, TUNED, WRAPPED, Sample

NAMES = {
    PLAIN: "confluent-kafka, as shipped",
    TUNED: "confluent-kafka, tuned by hand",
    WRAPPED: "kclient-quota",
}
_COLOURS = {PLAIN: "yellow", TUNED: "cyan", WRAPPED: "green"}
_BAR = "▁▂▃▄▅▆▇█"
_BAR_SLOTS = 24
_NOTHING = Sample(0, 0, 0, 0, 0, 0)

Watcher = Callable[[str, list[Sample]], None]
"""Is shown a flavour and all its samples so far, whenever one arrives."""


@contextmanager
def watching(console: Console, scenes: Sequence[Scene]) -> Iterator[Callable[[Scene], Watcher]]:
    """Show all scenes while they play; where the output is not a terminal, say only what is played."""
    seen: dict[str, dict[str, list[Sample]]] = {scene.name: {} for scene in scenes}

    def remember(scene: Scene, flavour: str, samples: list[Sample]) -> None:
        seen[scene.name][flavour] = samples

    for scene in scenes:
        console.print(f"[bold]{scene.title}[/bold]: {scene.story} {conditions(scene)}")
    if not console.is_terminal:
        yield lambda scene: partial(remember, scene)
        return
    with Live(console=console, refresh_per_second=4, get_renderable=lambda: _screen(scenes, seen)):
        yield lambda scene: partial(remember, scene)


def conditions(scene: Scene) -> str:
    """The quota of each client, in words."""
    return f"{scene.quota_key} = {scene.quota:,.0f} for each client, {scene.seconds:g} s."


def _screen(scenes: Sequence[Scene], seen: dict[str, dict[str, list[Sample]]]) -> Table:
    table = Table(title="playing all scenes at once", title_justify="left")
    for column in ("", "time", "done", "of quota", "waited in produce()", "throttle", "bytes by time"):
        table.add_column(column, justify="left" if not column or column.startswith("bytes") else "right")
    for scene in scenes:
        table.add_row(f"[bold]{scene.title}[/bold]")
        for flavour in FLAVOURS:
            table.add_row(*_line(scene, flavour, seen[scene.name].get(flavour, [])), style=_COLOURS[flavour])
        table.add_section()
    return table


def _line(scene: Scene, flavour: str, samples: list[Sample]) -> tuple[str, ...]:
    last = samples[-1] if samples else _NOTHING
    share = last.payload_bytes * 1000 / (scene.quota * last.at_ms) if last.at_ms else 0.0
    return (
        f"  {NAMES[flavour]}",
        f"{min(last.at_ms / 1000, scene.seconds):.0f} s",
        f"{last.done:,}",
        f"{share:.0%}",
        f"{last.waited_ms / 1000:.1f} s" if scene.name != "consumers" else "",
        f"{max((sample.throttle_ms for sample in samples), default=0) / 1000:.1f} s",
        _spark(scene, samples),
    )


def _spark(scene: Scene, samples: list[Sample]) -> str:
    """Bytes in every slot of the scene's time against what the quota allows in one (half height)."""
    slot_ms = scene.seconds * 1000 / _BAR_SLOTS
    slots = [0.0] * _BAR_SLOTS
    before = 0
    for sample in samples:
        slot = min(int(sample.at_ms / slot_ms), _BAR_SLOTS - 1)
        slots[slot] += sample.payload_bytes - before
        before = sample.payload_bytes
    full = 2 * scene.quota * slot_ms / 1000
    return "".join(_BAR[min(int(value / full * len(_BAR)), len(_BAR) - 1)] if value else " " for value in slots)


def verdicts(played: Sequence[tuple[Scene, Sequence[Finding]]]) -> Table:
    """What every client came to, in words, before any figure."""
    table = Table(title="Verdict", title_justify="left", show_lines=False)
    table.add_column("")
    table.add_column("")
    for scene, findings in played:
        table.add_row(f"[bold]{scene.title}[/bold]", "")
        for finding in findings:
            table.add_row(f"  {NAMES[finding.flavour]}", verdict(scene, finding), style=_COLOURS[finding.flavour])
    return table


def result_table(scene: Scene, findings: list[Finding]) -> Table:
    """The scene's result, one column per flavour."""
    table = Table(title=f"{scene.title} ({conditions(scene)})", title_justify="left")
    table.add_column("")
    for finding in findings:
        table.add_column(NAMES[finding.flavour], justify="right")
    for label, cells in rows(scene, findings):
        table.add_row(label, *cells)
    return table


def rows(scene: Scene, findings: list[Finding]) -> list[tuple[str, list[str]]]:
    """The result's rows: label, and one cell per flavour; only those that the scene can say something about."""
    told: list[tuple[str, Callable[[Finding], str]]] = []
    if scene.name == "consumers":
        told.append(("longest time without a message", lambda f: f"{f.outcome.latencies_ms[2] / 1000:.1f} s"))
    else:
        told += [
            ("lost (failed, or acknowledged and missing)", lambda f: f"{f.lost:,}"),
            ("stored twice", lambda f: f"{f.duplicates:,}"),
            ("stored, but without a report at the end", lambda f: f"{f.reported_lost_but_stored:,}"),
            ("late: produce() to report, p99", lambda f: f"{f.outcome.latencies_ms[1] / 1000:.2f} s"),
            ("late: the longest", lambda f: f"{_longest_ms(f) / 1000:.2f} s"),
            ("not answered at the end", lambda f: f"{f.outcome.pending:,}"),
        ]
    if scene.name == "transforms":
        told.append(("times the group was lost", lambda f: f"{f.outcome.rebalances:,}"))
    told += [
        ("done", lambda f: f"{f.outcome.done:,}"),
        ("payload, of quota × time", lambda f: f"{f.share:.0%}{' (over the quota)' if f.share > 1 else ''}"),  # noqa: RUF001
        ("longest throttle", lambda f: f"{f.outcome.throttle_max_ms / 1000:.1f} s"),
    ]
    if scene.name != "consumers":
        told.append(("the price: time waited in produce()", lambda f: f"{f.outcome.waited_ms / 1000:.1f} s"))
    return [(label, [cell(finding) for finding in findings]) for label, cell in told]


def _longest_ms(finding: Finding) -> int:
    return max(finding.outcome.latencies_ms[2], finding.outcome.oldest_pending_ms)
