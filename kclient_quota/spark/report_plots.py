"""The report's pictures, as inline SVG."""

import io
from datetime import UTC, datetime, timedelta
from typing import Final

from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from kclient_quota.spark.report_tables import BINS, Heat

_NOW, _NEW, _LIMIT, _BARS = "#c2660a", "#0a7d4b", "#444444", "#4472a8"
_WIDE: Final = 11.0
_TICKS: Final = 9
_DAY_MS: Final = 86_400_000


def heat_map(heat: Heat) -> str:
    """Clients down, time across; the darker, the longer the throttle time."""
    figure, axes = _axes(len(heat.clients), _WIDE)
    cells = [[value if value is not None else float("nan") for value in row] for row in heat.seconds]
    image = axes.imshow(cells, aspect="auto", cmap="YlOrRd", vmin=0, interpolation="nearest")
    figure.colorbar(image, ax=axes, label="longest throttle time, s", pad=0.01)
    axes.set_facecolor("#f4f4f4")
    columns = len(heat.seconds[0])
    places = list(range(0, columns, max(1, -(-columns // _TICKS))))
    begin = datetime.fromtimestamp(heat.begin_ms / 1000, tz=UTC)
    form = "%H:%M" if columns * heat.width_ms < _DAY_MS else "%m-%d %H:%M"
    axes.set_xticks(places, [f"{begin + timedelta(milliseconds=heat.width_ms * at):{form}}" for at in places])
    _name_rows(axes, heat.clients)
    return _svg(figure)


def utilisation(rows: list[tuple[str, float, float]]) -> str:
    """For each client a line from the median to the highest utilisation."""
    figure, axes = _axes(len(rows), _WIDE / 2)
    places = range(len(rows))
    axes.hlines(places, [median for _, median, _ in rows], [most for *_, most in rows], color=_BARS, linewidth=3)
    axes.plot([median for _, median, _ in rows], places, "o", color=_BARS, label="median window")
    axes.plot([most for *_, most in rows], places, "|", color=_BARS, markersize=12, label="highest window")
    axes.axvline(1, color=_LIMIT, linestyle="--", linewidth=1, label="quota")
    axes.set_xlim(left=0)
    axes.set_xlabel("bytes, quota = 1")
    axes.legend(frameon=False, fontsize="small")
    _name_rows(axes, [name for name, *_ in rows])
    axes.set_ylim(len(rows) - 0.5, -0.5)
    return _svg(figure)


def spread(counts: list[int]) -> str:
    """How often which utilisation was."""
    figure = Figure(figsize=(_WIDE / 2, 3.2), layout="constrained")
    axes = figure.add_subplot()
    width = 2 / BINS
    colours = [_NOW if bar * width >= 1 else _BARS for bar in range(BINS)]
    axes.bar([(bar + 0.5) * width for bar in range(BINS)], counts, width=width * 0.9, color=colours)
    axes.axvline(1, color=_LIMIT, linestyle="--", linewidth=1)
    axes.set_xlabel("bytes, quota = 1 (last bar: 1.95 and more)")
    axes.set_ylabel("windows of clients")
    _plain(axes)
    return _svg(figure)


def shares(names: list[str], parts: list[float]) -> str:
    """The mean share of each outlier where it is one."""
    figure, axes = _axes(len(names), _WIDE / 2)
    axes.barh(range(len(names)), parts, color=_NOW, height=0.7)
    axes.set_xlabel("mean share of the broker")
    axes.set_xlim(0, max(1.0, *parts))
    _name_rows(axes, names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    return _svg(figure)


def quotas(rows: list[tuple[str, float, float | None, float | None]]) -> str:
    """Demand beside the quota in force and the recommended one, on a logarithmic scale."""
    figure, axes = _axes(len(rows), _WIDE)
    places = range(len(rows))
    axes.plot([max(demand, 1) for _, demand, _, _ in rows], places, "o", color=_BARS, label="demand, 95th percentile")
    for label, place, colour in (("quota in force", 2, _NOW), ("recommended", 3, _NEW)):
        marks = [(row[place], at) for at, row in enumerate(rows) if row[place] is not None]
        if marks:
            values, at = zip(*marks, strict=True)
            axes.plot(values, at, "|", color=colour, markersize=14, markeredgewidth=3, label=label)
    axes.set_xscale("log")
    axes.set_xlabel("bytes per second and broker")
    figure.legend(frameon=False, fontsize="small", loc="outside upper center", ncols=3)
    _name_rows(axes, [name for name, *_ in rows])
    axes.set_ylim(len(rows) - 0.5, -0.5)
    return _svg(figure)


def _axes(rows: int, width: float) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(width, max(1.8, 0.27 * rows + 0.9)), layout="constrained")
    axes = figure.add_subplot()
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
