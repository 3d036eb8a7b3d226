"""The report's pictures, as inline SVG."""

import io
from datetime import UTC, datetime, timedelta
from typing import Final

from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.colors import ListedColormap, LogNorm
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter, date2num
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, StrMethodFormatter

from kclient_quota.spark.reporting.tables import BINS, UTILISATION, Heat

_NOW, _NEW, _LIMIT, _BARS = "#c2660a", "#0a7d4b", "#444444", "#4472a8"
_NOTHING, _FREE = "#ffffff", "#e4ece6"
_WIDE: Final = 11.0
_SHORTEST_S: Final = 0.1
"""Shorter throttle times are all of one colour."""


def heat_map(heat: Heat) -> str:
    """Clients down, time across; the darker, the longer the throttle time; no push and no throttling told apart."""
    figure, axes = _axes(len(heat.clients), _WIDE, "Longest throttle time by client and time")
    begin = datetime.fromtimestamp(heat.begin_ms / 1000, tz=UTC)
    width = timedelta(milliseconds=heat.width_ms)
    edges = [float(date2num(begin + width * at)) for at in range(len(heat.seconds[0]) + 1)]  # type: ignore[no-untyped-call]
    lines = [at - 0.5 for at in range(len(heat.clients) + 1)]
    nan = float("nan")
    throttled = [[value or nan for value in row] for row in heat.seconds]
    free = [[1.0 if value == 0 else nan for value in row] for row in heat.seconds]
    axes.set_facecolor(_NOTHING)
    axes.pcolormesh(edges, lines, free, cmap=ListedColormap([_FREE]), edgecolors="none")
    longest = max(filter(None, (value for row in heat.seconds for value in row)), default=1.0)
    scale = LogNorm(min(_SHORTEST_S, longest / 10), longest)  # one long one leaves the short ones their colours
    image = axes.pcolormesh(edges, lines, throttled, cmap="YlOrRd", norm=scale, edgecolors="none")
    told = "longest throttle time, s"
    figure.colorbar(image, ax=axes, label=told, pad=0.01, extend="min", format=StrMethodFormatter("{x:,g}"))
    axes.xaxis_date(tz="UTC")
    locator = AutoDateLocator(tz=UTC, maxticks=9)  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator, tz=UTC))  # type: ignore[no-untyped-call]
    axes.set_xlim(edges[0], edges[-1])
    axes.set_xlabel("time, UTC")
    axes.grid(visible=False)
    _name_rows(axes, heat.clients)
    axes.set_ylim(len(heat.clients) - 0.5, -0.5)
    marks = [
        Patch(facecolor=_FREE, label="not throttled"),
        Patch(facecolor=_NOTHING, edgecolor="#999", label="no push"),
    ]
    figure.legend(handles=marks, frameon=False, fontsize="small", loc="outside lower left", ncols=2)
    return _svg(figure)


def utilisation(rows: list[tuple[str, float, float]]) -> str:
    """For each client a line from the median to the highest utilisation."""
    figure, axes = _axes(len(rows), _WIDE / 2, "Nearest to their quota, or above")
    places = range(len(rows))
    medians, highest = ([min(row[at], UTILISATION) for row in rows] for at in (1, 2))
    axes.hlines(places, medians, highest, color=_BARS, linewidth=3)
    axes.plot(medians, places, "o", color=_BARS, label="median window", clip_on=False)
    axes.plot(highest, places, "|", color=_BARS, markersize=12, label="highest window")
    axes.axvline(1, color=_LIMIT, linestyle="--", linewidth=1, label="quota")
    for at, (_, median, most) in enumerate(rows):
        if most > UTILISATION:  # what the axis has no room for is written beside it
            told = f"{median:,.1f} to {most:,.1f}" if median > UTILISATION else f"to {most:,.1f}"
            axes.annotate(f" ▸ {told}", (UTILISATION, at), va="center", fontsize="small", annotation_clip=False)
    axes.set_xlim(0, UTILISATION)
    axes.set_xlabel("bytes of all who share the quota, quota = 1")
    figure.legend(frameon=False, fontsize="small", loc="outside lower center", ncols=3)
    _name_rows(axes, [name for name, *_ in rows])
    axes.set_ylim(len(rows) - 0.5, -0.5)
    return _svg(figure)


def spread(counts: list[int]) -> str:
    """How often which utilisation was."""
    figure = Figure(figsize=(_WIDE / 2, 3.2), layout="constrained")
    axes = figure.add_subplot()
    width = UTILISATION / BINS
    colours = [_NOW if bar * width >= 1 else _BARS for bar in range(BINS)]
    axes.bar([(bar + 0.5) * width for bar in range(BINS)], counts, width=width * 0.9, color=colours)
    axes.axvline(1, color=_LIMIT, linestyle="--", linewidth=1)
    axes.set_title("How often which utilisation", loc="left", fontsize="medium")
    last = (BINS - 1) * width
    axes.set_xticks([0, 0.5, 1, 1.5, last + width / 2], ["0", "0.5", "1", "1.5", f"{last:g}\nand more"])
    axes.set_xlim(0, UTILISATION)
    axes.set_xlabel("bytes of all who share the quota, quota = 1")
    axes.set_ylabel("windows of clients")
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    _plain(axes)
    return _svg(figure)


def shares(names: list[str], parts: list[float]) -> str:
    """The mean share of each outlier where it is one."""
    figure, axes = _axes(len(names), _WIDE / 2, "Mean share of the broker")
    axes.barh(range(len(names)), parts, color=_NOW, height=0.7)
    axes.set_xlabel("part of the broker's bytes; 1 = all")
    axes.set_xlim(0, max(1.0, *parts))
    _name_rows(axes, names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    return _svg(figure)


def quotas(rows: list[tuple[str, float, float | None, float | None]]) -> str:
    """Demand beside the quota in force and the recommended one, on a logarithmic scale."""
    figure, axes = _axes(len(rows), _WIDE, "Demand and quotas of the busiest clients")
    places = range(len(rows))
    axes.plot([max(demand, 1) for _, demand, _, _ in rows], places, "o", color=_BARS, label="demand, 95th percentile")
    for label, place, colour in (("quota in force", 2, _NOW), ("recommended", 3, _NEW)):
        marks = [(row[place], at) for at, row in enumerate(rows) if row[place] is not None]
        if marks:
            values, at = zip(*marks, strict=True)
            axes.plot(values, at, "|", color=colour, markersize=14, markeredgewidth=3, label=label)
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _place: f"{value:,.0f}"))
    axes.set_xlabel("bytes per second and broker, logarithmic")
    figure.legend(frameon=False, fontsize="small", loc="outside lower center", ncols=3)
    _name_rows(axes, [name for name, *_ in rows])
    axes.set_ylim(len(rows) - 0.5, -0.5)
    return _svg(figure)


def _axes(rows: int, width: float, title: str) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(width, max(2.2, 0.27 * rows + 1.3)), layout="constrained")
    axes = figure.add_subplot()
    axes.set_title(title, loc="left", fontsize="medium")
    _plain(axes)
    return figure, axes


def _plain(axes: Axes) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_axisbelow(True)
    axes.grid(visible=True, axis="x", alpha=0.25)


def _name_rows(axes: Axes, names: list[str]) -> None:
    axes.set_yticks(range(len(names)), [name if len(name) <= 36 else f"{name[:35]}…" for name in names])  # noqa: PLR2004 # as wide as reads well
    axes.tick_params(axis="y", labelsize="small")


def _svg(figure: Figure) -> str:
    buffer = io.StringIO()
    FigureCanvasSVG(figure)
    figure.savefig(buffer, format="svg")
    text = buffer.getvalue()
    return text[text.index("<svg") :]
