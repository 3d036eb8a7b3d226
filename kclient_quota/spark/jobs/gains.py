"""Which clients would gain most from compression, or from larger batches: more messages for the same quota.

A broker counts what comes over the wire, headers included (see the explanation of quota bytes): a batch of few records
is dearer than one of many, and one that is not compressed dearer than one that is. Clients tell the size of their
batches, how far they compress and how long records wait for a batch. From that, for each producer:

    larger batches      records that wait for `linger_ms` in place of `queue_ms` come in batches so many times as large,
                        up to `batch_bytes`; the price of batches and requests is shared by more
    compression         who does not compress would reach what those of the fleet that do reach (their median), or
                        `ratio` where it is given; who compresses already gains nothing here, though larger batches
                        compress better: that is left out

It is an estimate: how far a client's messages can be compressed nobody knows but who tries.

| column | unit | meaning |
| --- | --- | --- |
| user, client_id | | who |
| clients | | instances that told |
| byte_rate | bytes/s | of all of them on all brokers, in the mean over the time |
| unserved | | part of the time that they waited for the quota or were throttled; above 0 it is worth the most |
| batch_bytes | bytes | mean batch on the wire, with its header; null: not told (librdkafka's do not) |
| ratio | | bytes of records on the wire for each byte of records; 1: not compressed |
| queue_ms | ms | mean time that records wait for their batch |
| overhead | | part of the bytes that batches' and requests' headers are |
| by_batches, by_compression | bytes/s | what either alone would save |
| saved | bytes/s | what both would save |
| advice | | batches, compression, both, or none where less than a twentieth would be saved; null: not told |
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812 # what every Spark program calls it

from kclient_quota.spark.jobs.demand import with_demand
from kclient_quota.spark.measures import METRICS, PRODUCER, measured

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

LINGER_MS: Final = 100.0
"""How long records are let wait for a batch, unless asked otherwise."""

BATCH_BYTES: Final = 16_384
"""Up to which size larger batches are thought of, unless asked otherwise: the default of `batch.size`."""

RATIO: Final = 0.5
"""What compression is taken to reach where nobody compresses."""

HEADERS: Final = 121.0
"""Bytes of a batch's header (61) and of a request for one partition (about 60, and the topic's name, left out)."""

_PREFIX: Final = "org.apache.kafka.producer."
_BATCH, _RATIO, _QUEUE = "batch_bytes", "batch_ratio", "queue_ms"
_OWN_BATCH, _OWN_RATIO, _OWN_QUEUE = "own_batch_bytes", "own_ratio", "own_queue_ms"

BATCHES: Final[Mapping[str, tuple[str, str]]] = {
    f"{_PREFIX}batch.size.avg": (PRODUCER, _BATCH),
    f"{_PREFIX}compression.rate.avg": (PRODUCER, _RATIO),
    f"{_PREFIX}record.queue.time.avg": (PRODUCER, _QUEUE),
    f"{_PREFIX}quota.batch.size.avg": (PRODUCER, _OWN_BATCH),
    f"{_PREFIX}quota.compression.rate.avg": (PRODUCER, _OWN_RATIO),
    f"{_PREFIX}quota.queue.time.avg": (PRODUCER, _OWN_QUEUE),
}
"""Metric -> (role, measure): Java's, librdkafka's and ours."""

MEASURES: Final = {**METRICS, **BATCHES}
"""What `gains` looks at, usage included."""

_HEADER: Final = 61.0
_COMPRESSED: Final = 0.95
_WORTH: Final = 0.05
_WHO: Final = ("user", "client_id")


def gains(
    points: "DataFrame",
    usage: "DataFrame",
    linger_ms: float = LINGER_MS,
    batch_bytes: float = BATCH_BYTES,
    ratio: float | None = None,
) -> "DataFrame":
    """A row for each user and client-id of a producer; who would save most is first in the column `saved`.

    Args:
        points: the table of points of a batch.
        usage: rows of the job `usage` of the same.
        linger_ms: so long records may wait for a batch.
        batch_bytes: so large batches may get.
        ratio: what compression reaches; None: what it does with those who compress.
    """
    told = _rates(usage).join(_told(points), [F.col(f"u.{name}").eqNullSafe(F.col(f"t.{name}")) for name in _WHO])
    rows = told.select(*(f"u.{name}" for name in _WHO), "clients", "byte_rate", "unserved", _BATCH, "ratio", _QUEUE)
    compresses = F.when(F.col("ratio") < _COMPRESSED, F.col("ratio"))
    usual = rows.agg(F.coalesce(F.lit(ratio), F.percentile_approx(compresses, 0.5), F.lit(RATIO)).alias("_usual"))
    return _saved(rows.crossJoin(F.broadcast(usual)), linger_ms, batch_bytes)


def _rates(usage: "DataFrame") -> "DataFrame":
    """What producers do in the mean, all brokers together; without brokers what they tell of the whole client."""
    rows = with_demand(usage.where(F.col("role") == PRODUCER))
    length_ms = F.unix_millis("window_end") - F.unix_millis("window_start")
    rows = rows.withColumn("_bytes", F.col("byte_rate") * length_ms)
    of_brokers = F.sum(F.when(F.col("broker").isNotNull(), F.col("_bytes")))
    whole = F.sum(F.when(F.col("broker").isNull(), F.col("_bytes")))
    span = F.max(F.unix_millis("window_end")) - F.min(F.unix_millis("window_start"))
    return (
        rows.groupBy(*_WHO)
        .agg(
            (F.coalesce(of_brokers, whole) / span).alias("byte_rate"),
            F.coalesce(F.try_divide(F.sum(F.col("unserved") * length_ms), F.sum(length_ms)), F.lit(0.0)).alias(
                "unserved"
            ),
        )
        .alias("u")
    )


def _told(points: "DataFrame") -> "DataFrame":
    """Batches, ratios and waits as told, in the mean; ours in Java's terms."""
    rows = measured(points, MEASURES).where(F.col("measure").isin(*(each for _, each in BATCHES.values())))
    names = (_BATCH, _RATIO, _QUEUE, _OWN_BATCH, _OWN_RATIO, _OWN_QUEUE)
    means = [
        F.avg(F.when((F.col("measure") == name) & (F.col("value") > 0), F.col("value"))).alias(name) for name in names
    ]
    instances = F.approx_count_distinct(F.coalesce("client_instance_id", "client_id")).alias("clients")
    found = rows.groupBy(*_WHO).agg(instances, *means)
    # ours is told of records alone, and its ratio of all that the quota pays for
    own = F.col(_OWN_BATCH).isNotNull() & F.col(_OWN_RATIO).isNotNull()
    records = F.greatest(F.col(_OWN_BATCH) * F.col(_OWN_RATIO) - HEADERS, F.lit(1.0))
    return found.select(
        *_WHO,
        "clients",
        F.coalesce(F.when(own, records + _HEADER), _BATCH).alias(_BATCH),
        F.when(own, _no_more(records / F.col(_OWN_BATCH))).otherwise(_no_more(F.col(_RATIO))).alias("ratio"),
        F.coalesce(_OWN_QUEUE, _QUEUE).alias(_QUEUE),
    ).alias("t")


def _no_more(ratio: "Column") -> "Column":
    """No more than 1; null where it is null."""
    return F.when(ratio.isNotNull(), F.least(ratio, F.lit(1.0)))


def _saved(rows: "DataFrame", linger_ms: float, batch_bytes: float) -> "DataFrame":
    """What the same records would cost in other batches."""
    records = F.when(F.col(_BATCH).isNotNull(), F.greatest(F.col(_BATCH) - _HEADER, F.lit(1.0)))
    longer = F.lit(linger_ms) / F.greatest(F.coalesce(_QUEUE, F.lit(linger_ms)), F.lit(1.0))
    waited = F.least(records * F.greatest(longer, F.lit(1.0)), F.lit(batch_bytes - _HEADER))
    larger = F.when(records.isNotNull(), F.greatest(records, waited))
    smaller = F.when(F.col("ratio") >= _COMPRESSED, F.least(F.col("_usual") / F.col("ratio"), F.lit(1.0)))
    smaller = F.coalesce(smaller, F.lit(1.0))
    now = 1 + HEADERS / records
    batched = 1 + HEADERS / larger
    # the same records in as many batches, which are smaller
    compressed = smaller + HEADERS / records
    both = smaller + HEADERS / larger

    def saved(then: "Column", name: str) -> "Column":
        return (F.col("byte_rate") * (1 - then / now)).alias(name)

    found = rows.select(
        *(*_WHO, "clients", "byte_rate", "unserved", _BATCH, "ratio", _QUEUE),
        (1 - 1 / now).alias("overhead"),
        saved(batched, "by_batches"),
        saved(compressed, "by_compression"),
        saved(both, "saved"),
    )
    helps = {name: F.col(f"by_{name}") > F.col("byte_rate") * _WORTH for name in ("batches", "compression")}
    advice = F.when(F.col("saved").isNull(), F.lit(None)).otherwise(
        F.when(helps["batches"] & helps["compression"], "both")
        .when(helps["batches"], "batches")
        .when(helps["compression"], "compression")
        .otherwise("none")
    )
    return found.withColumn("advice", advice)
