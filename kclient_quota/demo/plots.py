"""Plots of a scene as inline SVG, so that the report is one file that needs nothing else."""

import io
from itertools import pairwise

from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from kclient_quota.demo.live import NAMES
from kclient_quota.demo.scenes import Finding, Scene
from kclient_quota.demo.spec import Sample

_COLOURS = {"plain": "#c2660a", "wrapped": "#0a7d4b"}
_WINDOW_MS = 1_000


def throughput(scene: Scene, findings: list[Finding]) -> str:
    """Payload bytes per second of both flavours against the quota line."""
    figure, axes = blank("payload bytes per second")
    for finding in findings:
        times, rates = _rates(finding.samples)
        axes.step(times, rates, where="post", color=_COLOURS[finding.flavour], label=NAMES[finding.flavour])
    axes.axhline(scene.quota, color="#444444", linestyle="--", linewidth=1, label="quota")
    highest = max((max(_rates(finding.samples)[1], default=0) for finding in findings), default=0)
    # A first burst of ten seconds' worth must not flatten everything that follows.
    axes.set_ylim(0, min(max(highest, scene.quota) * 1.1, scene.quota * 4))
    axes.legend(frameon=False)
    return as_svg(figure)


def cumulative(scene: Scene, findings: list[Finding]) -> str:
    """Payload bytes done since the start against quota times time."""
    figure, axes = blank("payload bytes done")
    for finding in findings:
        times = [sample.at_ms / 1000 for sample in finding.samples]
        done = [sample.payload_bytes for sample in finding.samples]
        axes.plot(times, done, color=_COLOURS[finding.flavour], label=NAMES[finding.flavour])
    axes.plot(
        [0, scene.seconds],
        [0, scene.quota * scene.seconds],
        color="#444444",
        linestyle="--",
        linewidth=1,
        label="quota",
    )
    axes.legend(frameon=False)
    return as_svg(figure)


def throttle_times(findings: list[Finding]) -> str:
    """The longest throttle time of every moment."""
    figure, axes = blank("throttle time, s")
    for finding in findings:
        points = [(s.at_ms / 1000, s.throttle_ms / 1000) for s in finding.samples if s.throttle_ms > 0]
        axes.plot(
            [at for at, _ in points],
            [throttle for _, throttle in points],
            linestyle="none",
            marker="o",
            color=_COLOURS[finding.flavour],
            label=NAMES[finding.flavour],
        )
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False)
    return as_svg(figure)


def latencies(scene: Scene, findings: list[Finding]) -> str:
    """The longest wait of every moment."""
    waited_for = "gap between messages, s" if scene.name == "consumers" else "produce to report, s"
    figure, axes = blank(waited_for)
    for finding in findings:
        times = [sample.at_ms / 1000 for sample in finding.samples]
        waits = [sample.latency_ms / 1000 for sample in finding.samples]
        axes.step(times, waits, where="post", color=_COLOURS[finding.flavour], label=NAMES[finding.flavour])
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False)
    return as_svg(figure)


def _rates(samples: list[Sample]) -> tuple[list[float], list[float]]:
    """Bytes per second over steps of a second."""
    times, rates = [0.0], [0.0]
    begin = Sample(0, 0, 0, 0, 0, 0)
    for before, after in pairwise([begin, *samples]):
        if after.at_ms - begin.at_ms < _WINDOW_MS and after is not samples[-1]:
            continue
        elapsed_ms = after.at_ms - begin.at_ms
        if elapsed_ms <= 0:
            continue
        times.append(begin.at_ms / 1000)
        rates.append((after.payload_bytes - begin.payload_bytes) * 1000 / elapsed_ms)
        begin = after
        del before
    times.append(begin.at_ms / 1000)
    rates.append(rates[-1])
    return times, rates


def blank(y_label: str) -> tuple[Figure, Axes]:
    """A figure over seconds."""
    figure = Figure(figsize=(7.2, 2.9), layout="constrained")
    axes = figure.add_subplot()
    axes.set_xlabel("seconds")
    axes.set_ylabel(y_label)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(visible=True, axis="y", alpha=0.25)
    return figure, axes


def as_svg(figure: Figure) -> str:
    """A figure as inline SVG."""
    buffer = io.StringIO()
    FigureCanvasSVG(figure)
    figure.savefig(buffer, format="svg")
    drawn = buffer.getvalue()
    return drawn[drawn.index("<svg") :]
