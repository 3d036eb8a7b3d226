"""What is seen while a scene plays: both flavours side by side, redrawn a few times a second."""

from collections.abc import Callable

from rich.console import Console, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.table import Table

from kclient_quota.demo.scenes import Finding, Scene
from kclient_quota.demo.spec import FLAVOURS, WRAPPED, Sample

NAMES = {"plain": "confluent-kafka", "wrapped": "kclient-quota"}
_BAR = "▁▂▃▄▅▆▇█"
_BAR_SLOTS = 48


Watcher = Callable[[str, list[Sample]], None]
"""Is shown a flavour and all its samples so far, whenever one arrives."""


def watch(console: Console, scene: Scene, play: Callable[[Watcher], list[Finding]]) -> list[Finding]:
    """Play a scene and show it; plain lines of text where the output is not a terminal."""
    seen: dict[str, list[Sample]] = {flavour: [] for flavour in FLAVOURS}
    if not console.is_terminal:
        console.print(f"\n{scene.title}\n{scene.story}\n{scene.quota_key} = {scene.quota:,.0f} for each of the two")
        return play(seen.__setitem__)
    with Live(_screen(scene, seen), console=console, refresh_per_second=4) as live:

        def show(flavour: str, samples: list[Sample]) -> None:
            seen[flavour] = samples
            live.update(_screen(scene, seen))

        return play(show)


def _screen(scene: Scene, seen: dict[str, list[Sample]]) -> RenderableType:
    grid = Table.grid(expand=True, padding=(0, 1))
    for _ in FLAVOURS:
        grid.add_column(ratio=1)
    grid.add_row(*(_panel(scene, flavour, seen[flavour]) for flavour in FLAVOURS))
    frame = Table.grid(expand=True)
    frame.add_row(
        f"[bold]{scene.title}[/bold]\n{scene.story}\n{scene.quota_key} = {scene.quota:,.0f} for each of the two"
    )
    frame.add_row(grid)
    return frame


def _panel(scene: Scene, flavour: str, samples: list[Sample]) -> Panel:
    last = samples[-1] if samples else Sample(0, 0, 0, 0, 0, 0)
    rate = last.payload_bytes / (last.at_ms / 1000) if last.at_ms else 0.0
    lines = [
        f"{min(last.at_ms / 1000, scene.seconds):5.1f} s of {scene.seconds:g} s",
        f"done        {last.done:>8,}   failed {last.failed:>6,}",
        f"bytes/s     {rate:>8,.0f}   = {rate / scene.quota:5.0%} of the quota",
        f"throttle    {max((sample.throttle_ms for sample in samples), default=0):>8,} ms at most",
        f"latency     {max((sample.latency_ms for sample in samples), default=0):>8,} ms at most",
        f"rebalances  {last.rebalances:>8}" if scene.name == "transforms" else "",
        _spark(scene, samples),
    ]
    colour = "green" if flavour == WRAPPED else "yellow"
    return Panel("\n".join(lines), title=NAMES[flavour], border_style=colour)


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


def result_table(scene: Scene, findings: list[Finding]) -> Table:
    """The scene's result, one column per flavour."""
    table = Table(
        title=f"{scene.title} ({scene.quota_key} {scene.quota:,.0f}, {scene.seconds:g} s)", title_justify="left"
    )
    table.add_column("")
    for finding in findings:
        table.add_column(NAMES[finding.flavour], justify="right")
    for label, cells in rows(scene, findings):
        table.add_row(label, *cells)
    return table


def rows(scene: Scene, findings: list[Finding]) -> list[tuple[str, list[str]]]:
    """The result's rows: label, and one cell per flavour; only those that the scene can say something about."""
    told: list[tuple[str, Callable[[Finding], str]]] = [
        ("done", lambda f: f"{f.outcome.done:,}"),
        ("payload, of quota x time", lambda f: f"{f.share:.0%}"),
    ]
    if scene.name == "consumers":
        told.append(("longest gap between messages", lambda f: f"{f.outcome.latencies_ms[2] / 1000:.1f} s"))
    else:
        told += [
            ("reported as failed, or acknowledged and missing", lambda f: f"{f.lost:,}"),
            ("stored, but not reported as delivered", lambda f: f"{f.reported_lost_but_stored:,}"),
            ("duplicates", lambda f: f"{f.duplicates:,}"),
            ("produce to report: p50", lambda f: f"{f.outcome.latencies_ms[0]:,} ms"),
            ("produce to report: p99", lambda f: f"{f.outcome.latencies_ms[1]:,} ms"),
        ]
    if scene.name == "transforms":
        told.append(("group lost", lambda f: f"{f.outcome.rebalances:,} times"))
    told.append(("longest throttle", lambda f: f"{f.outcome.throttle_max_ms / 1000:.1f} s"))
    return [(label, [cell(finding) for finding in findings]) for label, cell in told]
