"""Who sends most, with a bounded number of counters: Misra and Gries' summary with weights, one a task and place.

Spark's own `approx_top_k` counts rows; here every row has a weight, its bytes.
"""

from collections.abc import Iterator
from functools import partial
from heapq import nlargest
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812 # what every Spark program calls it

from kclient_quota.spark.durations import duration_ms
from kclient_quota.spark.measures import BYTE_RATE, measured

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

COUNTERS: Final = 1_000
"""Of each task and place (window, role, broker), after every batch; between batches there may be more."""

_PLACE: Final = ("window_start", "cluster_id", "role", "broker")
_WHO: Final = ("user", "client_id")
_SCHEMA: Final = pa.schema(
    [
        ("window_start", pa.timestamp("us", "UTC")),
        *((name, pa.string()) for name in (*_PLACE[1:], *_WHO)),
        *((name, pa.float64()) for name in ("weight", "total", "lost")),
    ]
)
_DDL: Final = (
    "window_start timestamp_ltz, cluster_id string, role string, broker string, user string, client_id string, "
    "weight double, total double, lost double"
)

_Place = tuple[Any, ...]


class Summary:
    """The heaviest of many, kept in so many counters.

    Args:
        counters: how many.

    Attributes:
        total: all weight that was added.
        lost: what a counter can be too low at most; total / (counters + 1) is its bound.
    """

    def __init__(self, counters: int) -> None:
        self._most = counters
        self._weights: dict[_Place, float] = {}
        self.total = 0.0
        self.lost = 0.0

    def add(self, who: _Place, weight: float) -> None:
        """Count; call `trim` now and then."""
        self._weights[who] = self._weights.get(who, 0.0) + weight
        self.total += weight

    def trim(self) -> None:
        """Back to so many counters: all lose the weight of the heaviest that goes."""
        if len(self._weights) > self._most:
            less = nlargest(self._most + 1, self._weights.values())[-1]
            self._weights = {who: weight - less for who, weight in self._weights.items() if weight > less}
            self.lost += less

    def weights(self) -> dict[_Place, float]:
        """The counters."""
        return self._weights


def sketch(points: "DataFrame", window: str, counters: int = COUNTERS) -> "DataFrame":
    """Summaries of byte rates: rows with `user`, `client_id`, `weight`, and one a task and place with `total`, `lost`.

    All in bytes per second of the window; a push counts for the interval before it, in whatever windows that is.

    Args:
        points: the table of points.
        window: length of a window, in Spark's words.
        counters: see `COUNTERS`.
    """
    rates = measured(points).where((F.col("measure") == BYTE_RATE) & F.col("push_interval_ms").isNotNull())
    length = F.lit(duration_ms("window", window))
    end, start = F.unix_millis("time"), F.col("_start")
    begin = end - F.col("push_interval_ms")
    starts = F.sequence(F.floor(begin / length) * length, F.floor((end - 1) / length) * length, length)
    spans = rates.withColumn("_start", F.explode(starts))
    weight = F.col("value") * (F.least(end, start + length) - F.greatest(begin, start)) / length
    columns = (F.timestamp_millis(start).alias("window_start"), *_PLACE[1:], *_WHO, weight.alias("weight"))
    return spans.select(*columns).where("weight > 0").mapInArrow(partial(_summarise, counters=counters), _DDL)


def _summarise(batches: Iterator[pa.RecordBatch], counters: int) -> Iterator[pa.RecordBatch]:
    places: dict[_Place, Summary] = {}
    for batch in batches:
        touched = {}
        sums = pa.Table.from_batches([batch]).group_by([*_PLACE, *_WHO]).aggregate([("weight", "sum")])
        names = [*_PLACE, *_WHO, "weight_sum"]
        for row in zip(*(sums.column(name).to_pylist() for name in names), strict=True):
            place = row[: len(_PLACE)]
            touched[place] = places.setdefault(place, Summary(counters))
            touched[place].add(row[len(_PLACE) : -1], row[-1])
        for summary in touched.values():
            summary.trim()
    for place, summary in places.items():
        yield _rows(place, summary)


def _rows(place: _Place, summary: Summary) -> pa.RecordBatch:
    where = dict(zip(_PLACE, place, strict=True))
    rows: list[dict[str, Any]] = [where | {"total": summary.total, "lost": summary.lost}]
    for who, weight in summary.weights().items():
        rows.append(where | dict(zip(_WHO, who, strict=True)) | {"weight": weight})
    return pa.RecordBatch.from_pylist(rows, _SCHEMA)
