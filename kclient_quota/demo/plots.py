"""Plots of a scene as inline SVG, so that the report is one file that needs nothing else.

All plots of a scene have the same x axis; no axis is cut, and bytes are told in kB.
"""

import io
from html import escape
from xml.sax.saxutils import quoteattr

from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from kclient_quota.demo.live import NAMES
from kclient_quota.demo.scenes import Finding, Scene, verdict
from kclient_quota.demo.spec import PLAIN, TUNED, WRAPPED

_COLOURS = {PLAIN: "#c2660a", TUNED: "#2962a8", WRAPPED: "#0a7d4b"}
_STYLES = {PLAIN: "-", TUNED: "--", WRAPPED: "-"}


def cumulative(scene: Scene, findings: list[Finding]) -> str:
    """Payload done since the start against quota times time."""
    figure, axes = blank("kB done", scene.seconds)
    _cumulative(axes, scene, findings)
    told = ", ".join(f"{NAMES[finding.flavour]} {finding.outcome.payload_bytes / 1000:,.0f} kB" for finding in findings)
    allowed = scene.quota * scene.seconds / 1000
    return as_svg(figure, f"Payload done by time. The quota allows {allowed:,.0f} kB in all; at the end: {told}.")


def _cumulative(axes: Axes, scene: Scene, findings: list[Finding]) -> None:
    for finding in findings:
        _draw(axes, finding, [sample.payload_bytes / 1000 for sample in finding.samples])
    allowed = [0, scene.quota * scene.seconds / 1000]
    axes.plot([0, scene.seconds], allowed, color="#444444", linestyle=":", linewidth=1.5, label="the quota")
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False)


def throttle_times(scene: Scene, findings: list[Finding]) -> str:
    """The longest throttle time of every moment."""
    figure, axes = blank("throttle time, s", scene.seconds)
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
    told = ", ".join(f"{NAMES[f.flavour]} {f.outcome.throttle_max_ms / 1000:.1f} s" for f in findings)
    return as_svg(figure, f"Throttle times that the broker answered with. The longest: {told}.")


def latencies(scene: Scene, findings: list[Finding]) -> str:
    """The longest wait of every moment."""
    waited_for = "time without a message, s" if scene.name == "consumers" else "produce() to report, s"
    figure, axes = blank(waited_for, scene.seconds)
    for finding in findings:
        _draw(axes, finding, [sample.latency_ms / 1000 for sample in finding.samples], steps=True)
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False)
    told = ", ".join(f"{NAMES[f.flavour]} {f.outcome.latencies_ms[2] / 1000:.1f} s" for f in findings)
    return as_svg(figure, f"The longest wait that ended in every moment. The longest of all: {told}.")


def waits(scene: Scene, findings: list[Finding]) -> str:
    """How long the application has waited inside produce(), which is the price of all the rest."""
    figure, axes = blank("waited in produce(), s", scene.seconds)
    for finding in findings:
        _draw(axes, finding, [sample.waited_ms / 1000 for sample in finding.samples])
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False)
    told = ", ".join(f"{NAMES[f.flavour]} {f.outcome.waited_ms / 1000:.1f} s" for f in findings)
    return as_svg(figure, f"Time spent waiting inside produce(), summed. At the end: {told}.")


def picture(scene: Scene, findings: list[Finding], when: str) -> str:
    """One picture that stands by itself: what was done by time, and every client's verdict under it."""
    figure = Figure(figsize=(8.4, 4.6), layout=ConstrainedLayoutEngine(rect=(0, 0.16, 1, 0.84)))
    axes = figure.add_subplot()
    _dress(axes, "kB stored and reported", scene.seconds)
    _cumulative(axes, scene, findings)
    axes.set_title(f"The same backlog, {scene.quota_key} {scene.quota:,.0f}, one run, {when}", loc="left", fontsize=10)
    lines = [(finding, f"{NAMES[finding.flavour]}: {verdict(scene, finding)}") for finding in findings]
    for number, (finding, text) in enumerate(reversed(lines)):
        figure.text(0.01, 0.015 + 0.045 * number, text, color=_COLOURS[finding.flavour], fontsize=9)
    return as_svg(figure, ". ".join(text for _, text in lines) + ".")


def _draw(axes: Axes, finding: Finding, values: list[float], *, steps: bool = False) -> None:
    times = [sample.at_ms / 1000 for sample in finding.samples]
    axes.plot(
        times,
        values,
        drawstyle="steps-post" if steps else "default",
        linestyle=_STYLES[finding.flavour],
        color=_COLOURS[finding.flavour],
        label=NAMES[finding.flavour],
    )


def blank(y_label: str, seconds: float | None = None) -> tuple[Figure, Axes]:
    """A figure over seconds, from nothing to `seconds`."""
    figure = Figure(figsize=(7.2, 3.1), layout="constrained")
    axes = figure.add_subplot()
    _dress(axes, y_label, seconds)
    return figure, axes


def _dress(axes: Axes, y_label: str, seconds: float | None) -> None:
    axes.set_xlabel("seconds")
    axes.set_ylabel(y_label)
    axes.ticklabel_format(style="plain")
    if seconds is not None:
        axes.set_xlim(0, seconds)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(visible=True, axis="y", alpha=0.25)


def as_svg(figure: Figure, told: str = "") -> str:
    """A figure as inline SVG; `told` says in words what is to be seen, for those who cannot see it."""
    buffer = io.StringIO()
    FigureCanvasSVG(figure)
    figure.savefig(buffer, format="svg", metadata={"Date": None})
    drawn = buffer.getvalue()
    drawn = drawn[drawn.index("<svg") :]
    if not told:
        return drawn
    named = f'<svg role="img" aria-label={quoteattr(told)}'
    return drawn.replace("<svg", named, 1).replace(">", f"><title>{escape(told)}</title>", 1)
