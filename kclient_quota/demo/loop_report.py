"""What the scene of the closed loop came to, in words, numbers and a plot."""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

from rich.table import Table

from kclient_quota.demo import plots
from kclient_quota.demo.closed_loop import PUSH_MS, QUOTA, Closed
from kclient_quota.demo.fleet import Member, Moment

TITLE: Final = "d. The quota that serves: client metrics, Spark, kafka-quotas"
COLUMNS: Final = (("plain", "before"), ("wrapped", "after"))
_COLOURS: Final = {"meter": "#0a7d4b", "camera": "#c2660a"}


@dataclass(frozen=True, slots=True)
class LoopAct:
    """The scene, played.

    Attributes:
        members: of the fleet.
        history: its moments.
        closed: how the loop went.
    """

    members: tuple[Member, ...]
    history: list[Moment]
    closed: Closed


def story(members: tuple[Member, ...]) -> str:
    """What happens, for people."""
    rates = {kind: (len(some), some[0].bytes_per_second) for kind, some in _kinds(members).items()}
    who = " and ".join(f"{count} {kind}s that send {rate:,} bytes/s each" for kind, (count, rate) in rates.items())
    return (
        f"{who}, under one default quota. Each pushes its metrics every {PUSH_MS // 1000} s (KIP-714), a receiver "
        "writes them to a topic, the Spark job usage reads it as a stream, recommend writes a file, kafka-quotas "
        "applies it. They are wrapped clients as they come: they wait where others are throttled, and the time waited "
        "tells what they lack."
    )


def conditions() -> str:
    """What held at the beginning."""
    return f"producer_byte_rate = {QUOTA:,} for each"


def rows(act: LoopAct) -> list[tuple[str, list[str]]]:
    """Label, and a cell for before and after."""
    closed = act.closed
    spans = ((closed.begin, closed.before), (closed.calm, closed.after))
    found: list[tuple[str, list[str]]] = [
        ("seconds looked at", [f"{(end.at_ms - begin.at_ms) / 1000:.0f}" for begin, end in spans])
    ]
    for kind, members in _kinds(act.members).items():
        deltas = [_of(begin, end, members) for begin, end in spans]
        found.append((f"{kind}s that lack quota", [f"{delta.lacking} of {len(members)}" for delta in deltas]))
        found.append((f"time that {kind}s waited or were throttled", [f"{delta.lack:.1%}" for delta in deltas]))
        found.append((f"readings of {kind}s that found no room", [f"{delta.dropped:.0%}" for delta in deltas]))
    found.append(("from apply until nobody lacked quota", ["", f"{_settling_ms(closed) / 1000:.1f} s"]))
    return found


def as_json(act: LoopAct) -> dict[str, Any]:
    """The scene for summary.json."""
    closed = act.closed
    told = {}
    for name, begin, end in (("before", closed.begin, closed.before), ("after", closed.calm, closed.after)):
        told[name] = {"seconds": (end.at_ms - begin.at_ms) / 1000}
        for kind, members in _kinds(act.members).items():
            delta = _of(begin, end, members)
            told[name][f"{kind}s_lacking"] = delta.lacking
            told[name][f"{kind}s_waited"] = round(delta.waited, 4)
            told[name][f"{kind}s_throttled"] = round(delta.throttled, 4)
            told[name][f"{kind}s_dropped"] = round(delta.dropped, 4)
    return {
        "scene": "pipeline",
        "title": TITLE,
        "story": story(act.members),
        "quota": {"producer_byte_rate": QUOTA},
        "usage_rows": closed.rows,
        "findings": told,
        "settled_ms": _settling_ms(closed),
        "quotas": closed.quotas,
    }


def table(act: LoopAct) -> Table:
    """The result for a terminal."""
    made = Table(title=f"{TITLE} ({conditions()})", title_justify="left")
    made.add_column("")
    for _, name in COLUMNS:
        made.add_column(name, justify="right")
    for label, cells in rows(act):
        made.add_row(label, *cells)
    return made


def throttle_plot(act: LoopAct) -> str:
    """The part of the time in which the members of a kind waited or were throttled."""
    figure, axes = plots.blank("part of the time waited or throttled")
    begin_ms = act.history[0].at_ms
    for kind, members in _kinds(act.members).items():
        times, depths = [], []
        for before, after in pairwise(act.history):
            times.append((before.at_ms - begin_ms) / 1000)
            depths.append(_of(before, after, members).lack)
        axes.step(times, depths, where="post", color=_COLOURS.get(kind), label=f"{len(members)} {kind}s")
    applied_s = (act.closed.applied_at_ms - begin_ms) / 1000
    axes.axvline(applied_s, color="#444444", linestyle="--", linewidth=1, label="kafka-quotas apply")
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False)
    told = f"The part of the time that clients waited or were throttled; kafka-quotas apply after {applied_s:.0f} s."
    return plots.as_svg(figure, told)


@dataclass(frozen=True, slots=True)
class _Delta:
    """Members of a kind over a span: how many lack quota; means of parts of the time; part of readings dropped."""

    lacking: int
    lack: float
    waited: float
    throttled: float
    dropped: float


def _of(begin: Moment, end: Moment, members: list[Member]) -> _Delta:
    since = end.since(begin)
    told = [since[member.client_id] for member in members]
    dropped, sent = sum(each.dropped for each in told), sum(each.sent for each in told)
    all_ms = max(end.at_ms - begin.at_ms, 1) * len(members)
    return _Delta(
        lacking=len(end.lacking(begin) & {member.client_id for member in members}),
        lack=sum(each.lack_ms for each in told) / all_ms,
        waited=sum(each.wait_ms for each in told) / all_ms,
        throttled=sum(each.throttle_ms for each in told) / all_ms,
        dropped=dropped / max(dropped + sent, 1),
    )


def _settling_ms(closed: Closed) -> int:
    return max(closed.settled.at_ms - closed.applied_at_ms, 0)


def _kinds(members: tuple[Member, ...]) -> dict[str, list[Member]]:
    """Members by the first part of their client-id."""
    found: dict[str, list[Member]] = {}
    for member in members:
        found.setdefault(member.client_id.partition("-")[0], []).append(member)
    return found
