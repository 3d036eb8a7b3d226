"""`write` and `writeStream` `.format("kclient_quota")`: rows into Kafka, each task at the pace of the producer's quota.

Columns, as Spark's own Kafka sink has them; all but `value` may be missing or null:

| column | type | meaning |
| --- | --- | --- |
| value | binary or string | null is a tombstone |
| key | binary or string | |
| topic | string | where the option `topic` is not given |
| partition | int | null: the producer's partitioner decides |
| timestamp | timestamp | null: now |
| headers | array of struct of key: string, value: binary | |

| option | meaning |
| --- | --- |
| kafka.* | the producer's configuration, `kafka.bootstrap.servers` at least; kclient-quota's keys, too |
| topic | for all rows; counts more than the column |
| metricsFile | file on the driver that gets a line of JSON per batch: rows, bytes and how the brokers throttled |

Every task has a producer of its own, idempotent: retries inside a task write a row once and in order. A task that fails
and is done again, and a batch that is done again after a restart, write their rows again: at least once, as Spark's own
sink. A row that cannot be written fails its task with the reason.

Python sinks cannot add to a query's progress (Spark 4.3 keeps nothing of their commit messages); so each batch's
throttle times go to the log when there are any, and to `metricsFile`, out of which `sink_metrics` puts them into the
progress again.
"""

import json
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from kclient_quota.clients import KafkaError, KafkaException
from kclient_quota.clients.producer import Producer
from kclient_quota.errors import ClusterError, ConfigError, QuotaThrottledError
from kclient_quota.spark.kafka.options import Options
from kclient_quota.spark.kafka.reading import Throttles, failed, kafka_options

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

logger = logging.getLogger("kclient_quota")

_KNOWN: Final = ("topic", "metricsFile")
_DEFAULTS: Final = {
    "client.id": "kclient-quota-spark",
    "linger.ms": 20,
    "batch.size": 1_000_000,
    # A task has nothing else to do than to wait for its broker.
    "max.block.ms": 600_000,
}
_OURS: Final = {"enable.idempotence": True}
_TRANSACTIONAL: Final = "transactional.id"
_TYPES: Final = {
    "value": ("binary", "string"),
    "key": ("binary", "string"),
    "topic": ("string",),
    "partition": ("int",),
    "timestamp": ("timestamp",),
    "headers": ("array<struct<key:string,value:binary>>",),
}
_SUMS: Final = ("rows", "bytes", "throttles", "throttle_total_ms")
_TOPS: Final = ("throttle_max_ms", "seconds")
_TIMEOUT_S: Final = 30.0
_POLL_S: Final = 0.1


@dataclass
class Written(WriterCommitMessage):
    """What one task wrote, or all of a batch together.

    Attributes:
        rows: messages that their brokers have acknowledged.
        bytes: of keys and values.
        throttles: answers with a throttle time.
        throttle_total_ms: sum of these times.
        throttle_max_ms: the longest.
        seconds: that the longest task took.
    """

    rows: int = 0
    bytes: int = 0
    throttles: int = 0
    throttle_total_ms: int = 0
    throttle_max_ms: int = 0
    seconds: float = 0.0

    @property
    def throttle_avg_ms(self) -> float:
        """Mean of the throttle times."""
        return self.throttle_total_ms / max(self.throttles, 1)


def together(tasks: Iterable[WriterCommitMessage | None]) -> Written:
    """One batch out of its tasks; those that failed have no message."""
    known = [each for each in tasks if isinstance(each, Written)]
    sums = {name: sum(getattr(each, name) for each in known) for name in _SUMS}
    tops = {name: max((getattr(each, name) for each in known), default=0) for name in _TOPS}
    return Written(**sums, **tops)


class SinkOptions(Options):
    """The options of the sink, checked, and what the rows hold.

    Raises:
        ConfigError: an option or a column cannot be used.
    """

    def __init__(self, options: Mapping[str, str], schema: "StructType") -> None:
        super().__init__(options, _KNOWN)
        self.conf = {**_DEFAULTS, **kafka_options(self.given), **_OURS}
        if self.conf.get(_TRANSACTIONAL):
            raise ConfigError(
                f"kafka.{_TRANSACTIONAL}: leave it out. Rows are written at least once, idempotent within a task; "
                "Spark cannot commit the transactions of several tasks together"
            )
        self.topic = self.text("topic") or None
        self.metrics_file = self.text("metricsFile") or None
        check_columns(schema, has_topic=self.topic is not None)


def check_columns(schema: "StructType", *, has_topic: bool) -> None:
    """Whether rows can be messages.

    Raises:
        ConfigError: a column is missing, of another type or unknown.
    """
    given = {field.name: field.dataType.simpleString() for field in schema}
    if "value" not in given:
        raise ConfigError("the column value is missing: select what is to be written AS value, binary or string")
    if "topic" not in given and not has_topic:
        raise ConfigError("the topic is missing: set the option topic, or add a column topic")
    for name, kind in given.items():
        if name not in _TYPES:
            raise ConfigError(f"the column {name} is unknown; select no others than {', '.join(_TYPES)}")
        if kind not in _TYPES[name]:
            raise ConfigError(f"the column {name} is {kind}: cast it to {' or '.join(_TYPES[name])}")


class _Sink:
    """What batches and streams have in common."""

    def __init__(self, options: Mapping[str, str], schema: "StructType") -> None:
        self._options = SinkOptions(options, schema)

    def write(self, iterator: "Iterator[pa.RecordBatch]") -> Written:
        """A task: on an executor."""
        return write_batches(self._options.conf, self._options.topic, iterator)

    def _end(self, tasks: Iterable[WriterCommitMessage | None], batch: int | None) -> None:
        written = together(tasks)
        if written.throttles:
            logger.warning(
                "Batch %s: %d rows written; brokers throttled its tasks %d times, %.0f ms on average, %d ms at most",
                *("of the query" if batch is None else batch, written.rows, written.throttles),
                *(written.throttle_avg_ms, written.throttle_max_ms),
            )
        if self._options.metrics_file:
            told = {"batch": batch, **asdict(written), "throttle_avg_ms": written.throttle_avg_ms}
            with Path(self._options.metrics_file).open("a", encoding="utf-8") as file:
                file.write(json.dumps(told) + "\n")


class KafkaBatchWriter(_Sink, DataSourceArrowWriter):
    """Writes the rows of a batch query."""

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """All tasks are done."""
        self._end(messages, None)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """A task failed for good; what the others wrote stays written."""


class KafkaStreamWriter(_Sink, DataSourceStreamArrowWriter):
    """Writes the rows of a stream's batches."""

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """All tasks of a batch are done."""
        self._end(messages, batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """A task failed for good; the batch is written again after a restart."""


def write_batches(conf: Mapping[str, Any], topic: str | None, batches: "Iterable[pa.RecordBatch]") -> Written:
    """Write rows and wait until every one is acknowledged.

    Args:
        conf: the producer's.
        topic: for all rows; None: their column says.
        batches: rows in the sink's columns.

    Raises:
        ClusterError: a row could not be written; says which and why.
    """
    began = time.monotonic()
    done = _Deliveries()
    throttles = Throttles()
    first: ClusterError | None = None
    try:
        with closing(Producer({**conf, "throttle_cb": throttles})) as producer:
            try:
                reach(producer, conf, topic)
                size = _write_all(producer, topic, batches, done)
            except ClusterError as error:
                first = error
                raise
    except KafkaException as error:
        # what is fatal for a producer is raised by whatever it is asked next, by close() too; what was first says more
        raise first or failed(_what(conf, topic), error) from error
    return Written(
        rows=done.count,
        bytes=size,
        throttles=throttles.count,
        throttle_total_ms=throttles.total_ms,
        throttle_max_ms=throttles.max_ms,
        seconds=time.monotonic() - began,
    )


def _write_all(producer: Producer, topic: str | None, batches: "Iterable[pa.RecordBatch]", done: "_Deliveries") -> int:
    """Write rows, wait until they are acknowledged, and say how many bytes their keys and values have."""
    size = 0
    for batch in batches:
        for row in _rows(batch, topic):
            _produce(producer, row, done)
        producer.poll(0)
        done.check()
        size += sum(batch.column(name).nbytes for name in ("key", "value") if name in batch.schema.names)
    producer.flush()
    done.check()
    producer.poll(0)  # throttles that came with the last answers
    return size


def _what(conf: Mapping[str, Any], topic: str | None) -> str:
    return f"writing to {topic or 'topics'} at {conf['bootstrap.servers']}"


def reach(producer: Producer, conf: Mapping[str, Any], topic: str | None) -> None:
    """Ask for the topic, so that a wrong address fails in seconds and not when messages expire.

    Raises:
        ClusterError: no broker answers, or there is no such topic for this client.
    """
    timeout_s = min(_TIMEOUT_S, int(conf.get("socket.timeout.ms", _TIMEOUT_S * 1000)) / 1000)
    what = _what(conf, topic)
    try:
        found = producer.list_topics(topic, timeout=timeout_s) if topic else producer.list_topics(timeout=timeout_s)
    except KafkaException as error:
        raise failed(what, error) from error
    refused = found.topics[topic].error if topic else None
    if refused is not None:
        raise failed(what, refused)


class _Deliveries:
    """Counts reports, and keeps the first that is bad."""

    def __init__(self) -> None:
        self.count = 0
        self._failed: ClusterError | None = None

    def __call__(self, error: KafkaError | None, message: Any) -> None:
        if error is None:
            self.count += 1
        elif self._failed is None:
            self._failed = failed(f"a row for {message.topic()} partition {message.partition()} was not written", error)

    def check(self) -> None:
        """Raise what went wrong."""
        if self._failed is not None:
            raise self._failed


def _produce(producer: Producer, row: tuple[Any, ...], done: _Deliveries) -> None:
    topic, value, key, partition, timestamp, headers = row
    while True:
        try:
            producer.produce(topic, value, key, partition, done, timestamp=timestamp, headers=headers)
        except QuotaThrottledError as error:
            raise ClusterError(f"a row for {topic} was not admitted within max.block.ms: {error}") from error
        except BufferError:  # librdkafka's own queue is full: its reports make room
            producer.poll(_POLL_S)
            done.check()
            continue
        except KafkaException as error:
            raise failed(f"a row for {topic} was not written", error) from error
        return


def _rows(batch: "pa.RecordBatch", topic: str | None) -> Iterator[tuple[Any, ...]]:
    """(topic, value, key, partition, timestamp in ms, headers) of every row."""
    names = set(batch.schema.names)

    def column(name: str, default: Any, convert: "Callable[[pa.Array], list[Any]] | None" = None) -> list[Any]:
        if name not in names:
            return [default] * batch.num_rows
        found = convert(batch.column(name)) if convert else batch.column(name).to_pylist()
        return found if default is None else [default if each is None else each for each in found]

    topics = [topic] * batch.num_rows if topic else column("topic", None)
    if None in topics:
        raise ClusterError("a row has no topic: its column topic is null, and the option topic is not set")
    yield from zip(
        topics,
        column("value", None),
        column("key", None),
        column("partition", -1),
        column("timestamp", 0, _millis),
        column("headers", None, _header_lists),
        strict=True,
    )


def _millis(column: "pa.Array") -> list[Any]:
    micros = column.cast("int64")
    return [None if each is None else each // 1000 for each in micros.to_pylist()]


def _header_lists(column: "pa.Array") -> list[Any]:
    return [None if row is None else [(header["key"], header["value"]) for header in row] for row in column.to_pylist()]
