"""What `kclient-quota simulate --plot` draws: bytes, shares and throttle times."""

from collections.abc import Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Final

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import StrMethodFormatter

from kclient_quota.errors import ConfigError
from kclient_quota.simulation import Figures, Outcome, Scenario
from kclient_quota.simulation.model import Kind
from kclient_quota.simulation.outcome import BIN_MS
from kclient_quota.simulation.rates import SPAN_MS, shares

_COLOURS: Final = {Kind.KNOWN: "#0a7d4b", Kind.LEARNING: "#4472a8", Kind.PLAIN: "#c2660a"}
_NAMES: Final = {Kind.KNOWN: "know the quota", Kind.LEARNING: "learn the quota", Kind.PLAIN: "plain librdkafka"}
_QUOTA_COLOUR: Final = "#444444"
_ALL_COLOUR: Final = "#999999"
_FITTING: Final = "max-width: 100%; height: auto"
"""On a page or screen that is narrower than the picture, all of it is seen."""


def draw(scenario: Scenario, outcomes: Sequence[Outcome], found: Figures, file: Path) -> None:
    """Draw one simulation; every kind of clients in its colour.

    Args:
        scenario: what was simulated.
        outcomes: all of its parts.
        found: its figures.
        file: where to; the suffix decides the format.

    Raises:
        ConfigError: matplotlib cannot write such a file, or not there.
    """
    figure = picture(scenario, outcomes, found)
    try:
        figure.savefig(file)
        if file.suffix == ".svg":
            drawn = file.read_text(encoding="utf-8")
            file.write_text(drawn.replace("<svg ", f'<svg style="{_FITTING}" ', 1), encoding="utf-8")
    except (OSError, ValueError) as error:
        raise ConfigError(f"--plot {file}: {error}") from error


def picture(scenario: Scenario, outcomes: Sequence[Outcome], found: Figures) -> Figure:
    """What `draw` writes."""
    kinds: dict[Kind, list[int]] = {}
    for client in range(scenario.total_clients):
        kinds.setdefault(scenario.kind(client), []).append(client)
    figure = Figure(figsize=(8, 9), layout="constrained")
    together, clients, throttles = figure.subplots(3, 1)
    clients.sharex(together)
    figure.suptitle(_title(scenario, kinds, found), fontsize="medium")
    _together(together, scenario, outcomes, kinds)
    _shares(clients, scenario, outcomes, kinds)
    _throttles(throttles, outcomes, kinds)
    together.set_xlim(0, scenario.end_ms / 1000)
    for axes in (together, clients):
        for change in scenario.changes:
            axes.axvline(change.at_ms / 1000, color=_QUOTA_COLOUR, linestyle=":", linewidth=1)
        axes.set_xlabel("seconds since the start")
        axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,g}"))
    for axes in (together, clients, throttles):
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(visible=True, axis="y", alpha=0.25)
        axes.legend(
            frameon=False,
            fontsize="small",
            ncols=5,
            columnspacing=1.2,
            handlelength=1.4,
            loc="lower left",
            bbox_to_anchor=(0, 1),  # above the data, wherever they are
            borderaxespad=0.2,
        )
    return figure


def _head(axes: Axes, title: str) -> None:
    axes.set_title(title, loc="left", fontsize="small", pad=20)  # over the legend


def _title(scenario: Scenario, kinds: Mapping[Kind, Sequence[int]], found: Figures) -> str:
    who = ", ".join(f"{len(members):,} {_NAMES[kind]}" for kind, members in kinds.items())
    what = f"{'consumer' if scenario.consume else 'producer'}{'s' if scenario.total_clients > 1 else ''}"
    brokers = f"{scenario.brokers:,} broker{'s' if scenario.brokers > 1 else ''}"
    each = " each" if scenario.brokers > 1 else ""
    return (
        f"{scenario.total_clients:,} {what} ({who}), {brokers}\n"
        f"quota {scenario.quota:,.0f} bytes/s{each}, of which {found.utilisation:.1%} used"
    )


def _together(axes: Axes, scenario: Scenario, outcomes: Sequence[Outcome], kinds: Mapping[Kind, Sequence[int]]) -> None:
    """Every second's bytes of all brokers: of each kind, and of all of them."""
    brokers = sum(len(outcome.part.brokers) for outcome in outcomes)
    quota = scenario.quota * brokers * BIN_MS / 1000
    rows = {client: bins for one in outcomes for client, bins in zip(one.part.clients, one.bytes_by_bin, strict=True)}

    def step(members: Sequence[int], colour: str, label: str) -> None:
        used = [sum(second) / quota for second in zip(*(rows[client] for client in members), strict=True)]
        axes.step([at * BIN_MS / 1000 for at in range(len(used))], used, where="post", color=colour, lw=1, label=label)

    if len(kinds) > 1:
        step(list(rows), _ALL_COLOUR, "all")
    for kind, members in kinds.items():
        step(members, _COLOURS[kind], _NAMES[kind])
    axes.axhline(1.0, color=_QUOTA_COLOUR, linestyle="--", linewidth=1, label="quota")
    axes.set_ylim(bottom=0)
    _head(axes, "Bytes of every second")
    axes.set_ylabel("bytes, quota = 1")


def _shares(axes: Axes, scenario: Scenario, outcomes: Sequence[Outcome], kinds: Mapping[Kind, Sequence[int]]) -> None:
    """Of each kind the poorest, the median and the richest client, as parts of an equal share among all clients."""
    presence = scenario.presence()
    spans = range(0, scenario.end_ms - SPAN_MS + 1, SPAN_MS)
    equal = []
    for begin_ms in spans:
        had = shares(presence, outcomes, begin_ms, begin_ms + SPAN_MS)
        equal.append(sum(had) / len(had) if any(had) else None)
    for kind, members in kinds.items():
        told_of = set(members)
        rows = []
        for begin_ms, each in zip(spans, equal, strict=True):
            had = sorted(shares(presence, outcomes, begin_ms, begin_ms + SPAN_MS, told_of))
            if had and each:
                at_s = (begin_ms + SPAN_MS / 2) / 1000
                rows.append((at_s, had[0] / each, had[len(had) // 2] / each, had[-1] / each))
        if not rows:
            continue
        times, lowest, middle, highest = zip(*rows, strict=True)
        axes.fill_between(times, lowest, highest, color=_COLOURS[kind], alpha=0.2)
        axes.plot(times, middle, color=_COLOURS[kind], label=_NAMES[kind])
    axes.axhline(1.0, color=_QUOTA_COLOUR, linestyle="--", linewidth=1)
    axes.set_ylim(bottom=0)
    _head(axes, f"What one client has, by {SPAN_MS // 1000} s: the median, and from the poorest to the richest")
    axes.set_ylabel("equal share = 1")


def _throttles(axes: Axes, outcomes: Sequence[Outcome], kinds: Mapping[Kind, Sequence[int]]) -> None:
    """Which part of each kind's responses carries a throttle time longer than that; after the warm-up."""
    for kind in kinds:
        counts: dict[int, int] = {}
        for outcome in outcomes:
            for throttle_ms, count in outcome.throttles[kind].counts.items():
                counts[throttle_ms] = counts.get(throttle_ms, 0) + count
        total = sum(counts.values())
        if not total:
            continue
        times = sorted(counts)
        longer = [1.0 - seen / total for seen in accumulate(counts[each] for each in times)]
        ends = [0.0, *(each / 1000 for each in times)]
        label = f"{_NAMES[kind]}: longest {times[-1] / 1000:,.1f} s"
        axes.step(ends, [1.0, *longer], where="post", color=_COLOURS[kind], label=label)
    axes.set_ylim(0, 1.02)
    axes.set_xlim(left=0)
    _head(axes, "How long responses throttle, after the warm-up")
    axes.set_xlabel("throttle time, seconds")
    axes.set_ylabel("part of responses with more")
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,g}"))
