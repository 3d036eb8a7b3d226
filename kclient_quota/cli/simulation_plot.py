"""What `kclient-quota simulate --plot` draws: bytes, shares and throttle times."""

from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from kclient_quota.errors import ConfigError
from kclient_quota.simulation import Figures, Outcome, Scenario
from kclient_quota.simulation.outcome import BIN_MS
from kclient_quota.simulation.rates import SPAN_MS, shares

_COLOUR, _QUOTA_COLOUR = "#0a7d4b", "#444444"


def draw(scenario: Scenario, outcomes: Sequence[Outcome], found: Figures, file: Path) -> None:
    """Draw one simulation.

    Args:
        scenario: what was simulated.
        outcomes: all of its parts.
        found: its figures.
        file: where to; the suffix decides the format.

    Raises:
        ConfigError: matplotlib cannot write such a file, or not there.
    """
    figure = Figure(figsize=(8, 8), layout="constrained")
    together, clients, throttles = figure.subplots(3, 1)
    _together(together, scenario, outcomes)
    _shares(clients, scenario, outcomes)
    _throttles(throttles, found)
    for axes in (together, clients):
        for change in scenario.changes:
            axes.axvline(change.at_ms / 1000, color=_QUOTA_COLOUR, linestyle=":", linewidth=1)
        axes.set_xlabel("seconds")
    for axes in (together, clients, throttles):
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(visible=True, axis="y", alpha=0.25)
    try:
        figure.savefig(file)
    except (OSError, ValueError) as error:
        raise ConfigError(f"--plot {file}: {error}") from error


def _together(axes: Axes, scenario: Scenario, outcomes: Sequence[Outcome]) -> None:
    """Every second's bytes of all brokers."""
    brokers = sum(len(outcome.part.brokers) for outcome in outcomes)
    every = [bins for outcome in outcomes for bins in outcome.bytes_by_bin]
    used = [sum(second) * 1000 / BIN_MS / (scenario.quota * brokers) for second in zip(*every, strict=True)]
    axes.step([at * BIN_MS / 1000 for at in range(len(used))], used, where="post", color=_COLOUR, linewidth=1)
    axes.axhline(1.0, color=_QUOTA_COLOUR, linestyle="--", linewidth=1)
    axes.set_ylim(0, min(max(*used, 1.0) * 1.1, 4.0))
    axes.set_ylabel("bytes, quota = 1")


def _shares(axes: Axes, scenario: Scenario, outcomes: Sequence[Outcome]) -> None:
    """The poorest, the median and the richest client, plain ones left out, as parts of an equal share."""
    presence = scenario.presence()
    told_of = range(scenario.total_clients - scenario.plain or scenario.total_clients)
    times, lowest, middle, highest = [], [], [], []
    for begin_ms in range(0, scenario.end_ms - SPAN_MS + 1, SPAN_MS):
        had = sorted(shares(presence, outcomes, begin_ms, begin_ms + SPAN_MS, told_of))
        if not any(had):
            continue
        equal = sum(had) / len(had)
        times.append((begin_ms + SPAN_MS / 2) / 1000)
        lowest.append(had[0] / equal)
        middle.append(had[len(had) // 2] / equal)
        highest.append(had[-1] / equal)
    axes.fill_between(times, lowest, highest, color=_COLOUR, alpha=0.2, label="poorest to richest client")
    axes.plot(times, middle, color=_COLOUR, label="median client")
    axes.set_ylim(bottom=0)
    axes.set_ylabel("equal share = 1, 10 s")
    axes.legend(frameon=False)


def _throttles(axes: Axes, found: Figures) -> None:
    """Which part of the responses carries a throttle time longer than that."""
    times = list(found.throttle_times)
    counts = list(found.throttle_times.values())
    longer = [1.0 - seen / sum(counts) for seen in accumulate(counts)]
    axes.step([0.0, *(time / 1000 for time in times)], [1.0, *longer], where="post", color=_COLOUR)
    axes.set_ylim(0, 1)
    axes.set_xlabel("throttle time, s")
    axes.set_ylabel("responses with more")
