"""Records for executors of the data source, through our own consumer."""

import logging
from collections.abc import Iterator, Mapping
from contextlib import closing
from itertools import chain
from typing import Any, Final

import numpy as np
import pyarrow as pa

from kclient_quota.clients import KafkaError, KafkaException, TopicPartition
from kclient_quota.clients.consumer import Consumer
from kclient_quota.errors import ClusterError, ConfigError
from kclient_quota.spark.kafka.offsets import Range

logger = logging.getLogger("kclient_quota")

SCHEMA: Final = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("timestampType", pa.int32()),
    ]
)
DDL: Final = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp_ltz, timestampType int"
)

HEADERS: Final = pa.field("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])))
HEADERS_DDL: Final = "headers array<struct<key: string, value: binary>>"
PACE: Final = pa.field(
    "pace",
    pa.struct([("bytes", pa.int64()), ("throttle_ms", pa.int64()), ("throttles", pa.int64()), ("quota", pa.float64())]),
)
PACE_DDL: Final = "pace struct<bytes: bigint, throttle_ms: bigint, throttles: bigint, quota: double>"

_PREFIX: Final = "kafka."
_DEFAULTS: Final = {
    "client.id": "kclient-quota-spark",
    "group.id": "kclient-quota-spark",
    # A fetcher with enough in its queue steps back for a second by default, in which Spark empties the queue and waits.
    "fetch.queue.backoff.ms": 10,
    "queued.min.messages": 1_000_000,
}
_OURS: Final = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "enable.partition.eof": True,
}
_AT_ONCE: Final = 10_000
_WAIT_S: Final = 0.25
_SILENT_S: Final = 120.0


def client_conf(options: Mapping[str, str]) -> dict[str, Any]:
    """The client's configuration: options that begin with `kafka.`.

    Raises:
        ConfigError: no broker is named.
    """
    return {**_DEFAULTS, **kafka_options(options), **_OURS}


def kafka_options(options: Mapping[str, str]) -> dict[str, Any]:
    """Options that begin with `kafka.`, without that.

    Raises:
        ConfigError: no broker is named.
    """
    conf = {key[len(_PREFIX) :]: value for key, value in options.items() if key.startswith(_PREFIX)}
    if not conf.get("bootstrap.servers"):
        raise ConfigError("kafka.bootstrap.servers is missing: name a broker as HOST:PORT")
    return conf


def failed(what: str, error: KafkaException | KafkaError) -> ClusterError:
    """An error with one message, since Spark shows little more of it."""
    reason = error.args[0] if isinstance(error, KafkaException) else error
    return ClusterError(f"{what}: {reason.str()} ({reason.name()})", error_code=reason.code())


def read_range(
    conf: Mapping[str, Any], wanted: Range, *, fail_on_data_loss: bool, headers: bool = False, pace: bool = False
) -> Iterator[pa.RecordBatch]:
    """The records of a range: of those offsets that hold any, each once, in order.

    A range ends by offset, not by count: transaction markers and compaction leave gaps.

    Args:
        conf: of `client_conf`.
        wanted: the range.
        fail_on_data_loss: records that are gone are an error, else they are passed over and the log says so.
        headers: add the column `HEADERS`.
        pace: add the column `PACE`, null but for the first row of a batch.

    Raises:
        ClusterError: they cannot be read, or are not there any more.
    """
    resets = wanted.is_new or not fail_on_data_loss
    throttles = Throttles()
    reset = {"auto.offset.reset": "earliest" if resets else "error", "throttle_cb": throttles}
    with closing(Consumer({**conf, **reset})) as consumer:
        consumer.assign([TopicPartition(wanted.topic, wanted.partition, wanted.start)])
        watch = _Pace(consumer, throttles)
        position, silent_s = wanted.start, 0.0
        while position < wanted.end:
            messages = consumer.consume(min(_AT_ONCE, wanted.end - position), _WAIT_S)
            found, offsets, reached = _taken(messages, wanted, position, is_strict=not resets)
            if position == wanted.start and not wanted.is_new:
                _tell_loss(wanted, offsets[0] if offsets else reached, resets=resets)
            position = reached
            if found:
                yield _batch(wanted, found, offsets, headers=headers, pace=watch.take() if pace else None)
            silent_s = 0.0 if messages else silent_s + _WAIT_S
            if silent_s >= _SILENT_S:
                stall = "; ".join(state.stall for state in consumer.quota_state().values() if state.stall)
                raise ClusterError(
                    f"{_where(wanted, position)}: no data for {_SILENT_S:.0f} s; {stall or 'broker away?'}"
                )


class Throttles:
    """Counts what brokers tell one client to wait; its `throttle_cb`.

    Attributes:
        count: answers with a throttle time.
        total_ms: their sum.
        max_ms: the longest.
    """

    def __init__(self) -> None:
        self.count = 0
        self.total_ms = 0
        self.max_ms = 0

    def __call__(self, event: Any) -> None:
        """Take a ThrottleEvent of librdkafka's."""
        throttle_ms = round(event.throttle_time * 1000)
        self.count += throttle_ms > 0
        self.total_ms += throttle_ms
        self.max_ms = max(self.max_ms, throttle_ms)


class _Pace:
    """What one consumer was told to wait, from one look to the next."""

    def __init__(self, consumer: Consumer, throttles: Throttles) -> None:
        self._consumer = consumer
        self._throttles = throttles
        self._seen = (0, 0)

    def take(self) -> dict[str, Any]:
        """Throttles since the last look, and the quota; bytes are for `_batch` to say."""
        now = (self._throttles.total_ms, self._throttles.count)
        limits = [state.limit for state in self._consumer.quota_state().values() if state.limit is not None]
        found = {
            "throttle_ms": now[0] - self._seen[0],
            "throttles": now[1] - self._seen[1],
            "quota": min(limits, default=None),
        }
        self._seen = now
        return found


def _tell_loss(wanted: Range, begins: int, *, resets: bool) -> None:
    """Say that records are passed over. Gaps that compaction leaves look the same, so it is no more than a line."""
    if resets and begins > wanted.start:
        logger.warning(
            "%s partition %d: offsets %d to %d are not there (retention, compaction or transaction markers) and are "
            "passed over, as failOnDataLoss is false",
            *(wanted.topic, wanted.partition, wanted.start, begins - 1),
        )


def _where(wanted: Range, position: int) -> str:
    return f"{wanted.topic} partition {wanted.partition} at offset {position} of {wanted.start} to {wanted.end}"


def _taken(messages: list[Any], wanted: Range, position: int, *, is_strict: bool) -> tuple[list[Any], list[int], int]:
    """What of `messages` belongs to the range, its offsets, and the offset to go on from."""
    if not messages:
        return messages, [], position
    message_type = type(messages[0])  # whose methods `map` calls without a step of Python's per record
    offsets = list(map(message_type.offset, messages))
    # One partition's records come in order; errors may have no offset.
    if not any(map(message_type.error, messages)) and position <= offsets[0] and offsets[-1] < wanted.end:
        return messages, offsets, offsets[-1] + 1
    found = []
    for message, offset in zip(messages, offsets, strict=True):
        error = message.error()
        if error is not None:
            position = _after_event(error, offset, wanted, position, is_strict=is_strict)
            continue
        if position <= offset < wanted.end:
            found.append(message)
        position = max(position, min(offset + 1, wanted.end))
    return found, [message.offset() for message in found], position


def _after_event(error: KafkaError, offset: int | None, wanted: Range, position: int, *, is_strict: bool) -> int:
    """Where to go on after the log's end, or after a reset."""
    if error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - its public name is this
        ended = offset if offset is not None else position
        return max(position, ended) if is_strict or ended >= wanted.end else wanted.end
    if error.code() == KafkaError._AUTO_OFFSET_RESET:  # noqa: SLF001 - as above
        raise ClusterError(
            f"{_where(wanted, position)}: these records are gone (retention, or the topic was made anew); "
            "set failOnDataLoss to false to go on without them"
        )
    raise failed(_where(wanted, position), error)


def _batch(
    wanted: Range, messages: list[Any], offsets: list[int], *, headers: bool, pace: dict[str, Any] | None
) -> pa.RecordBatch:
    count = len(messages)
    message_type = type(messages[0])
    pairs = chain.from_iterable(map(message_type.timestamp, messages))
    kinds_and_times = np.fromiter(pairs, np.int64, 2 * count)
    keys = pa.array(list(map(message_type.key, messages)), pa.binary())
    values = pa.array(list(map(message_type.value, messages)), pa.binary())
    columns = [
        *(keys, values),
        pa.repeat(pa.scalar(wanted.topic), count),
        pa.repeat(pa.scalar(wanted.partition, pa.int32()), count),
        pa.array(offsets, pa.int64()),
        pa.array(kinds_and_times[1::2] * 1000).cast(pa.timestamp("us", "UTC")),
        pa.array(kinds_and_times[::2].astype(np.int32)),
    ]
    fields = [*SCHEMA]
    if headers:
        columns.append(pa.array([_headers(message.headers()) for message in messages], HEADERS.type))
        fields.append(HEADERS)
    if pace is not None:
        pace["bytes"] = keys.nbytes + values.nbytes
        columns.append(pa.array([pace, *[None] * (count - 1)], PACE.type))
        fields.append(PACE)
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


def _headers(headers: list[tuple[str, bytes | None]] | None) -> list[dict[str, Any]] | None:
    return None if headers is None else [{"key": name, "value": value} for name, value in headers]
