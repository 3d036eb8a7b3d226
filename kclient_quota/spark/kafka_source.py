"""`spark.read` and `readStream` `.format("kclient_quota")`: Kafka without a connector of the JVM, paced by its quota.

`spark.dataSource.register(KafkaSource)` first. Options are those of Spark's own Kafka source where it has them:

| option | meaning |
| --- | --- |
| kafka.* | the consumer's configuration, `kafka.bootstrap.servers` at least; kclient-quota's keys, too |
| subscribe, subscribePattern | topics, separated by commas; or a pattern. One of the two |
| startingOffsets, endingOffsets | earliest (a batch's default start), latest, JSON; ending: batches only |
| startingTimestamp, endingTimestamp | ms since 1970; count more than offsets |
| failOnDataLoss | true: records that are gone end the query |
| minPartitions | at least so many tasks |
| maxOffsetsPerTrigger | of a stream: rows |
| maxBytesPerTrigger | of a stream: bytes, `quota`: what the quota gives in a trigger interval |
| triggerSeconds | that interval (10) |
"""

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from kclient_quota.errors import ClusterError, ConfigError
from kclient_quota.spark.kafka_reading import DDL, Brokers, client_conf, read_range
from kclient_quota.spark.offsets import EARLIEST, LATEST, Offsets, Range, limited, parse_offsets, ranges, resolved, walk

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import InputPartition
    from pyspark.sql.types import StructType

FORMAT: Final = "kclient_quota"
_OF_QUOTA: Final = "quota"
_SAMPLE_EVERY: Final = 16
_KNOWN: Final = frozenset(
    name.lower()
    for name in (
        *("subscribe", "subscribePattern", "startingOffsets", "endingOffsets", "startingTimestamp", "endingTimestamp"),
        *("failOnDataLoss", "minPartitions", "maxOffsetsPerTrigger", "maxBytesPerTrigger", "triggerSeconds"),
    )
)


class _Options:
    """The options, checked."""

    def __init__(self, options: Mapping[str, str]) -> None:
        given = {key.lower(): value for key, value in options.items()}
        unknown = sorted(key for key in given if not key.startswith("kafka.") and key not in _KNOWN)
        if unknown:
            raise ConfigError(f"option {unknown[0]} is unknown; there are {', '.join(sorted(_KNOWN))} and kafka.*")
        self._given = given
        self.conf = client_conf(given)
        self.fail_on_data_loss = given.get("failondataloss", "true").lower() != "false"
        self.least_tasks = self.number("minPartitions") or 0

    def number(self, name: str) -> int | None:
        """A whole number above zero, None when it is not given."""
        text = self._given.get(name.lower())
        if text is None:
            return None
        if not text.isdigit() or int(text) < 1:
            raise ConfigError(f"{name} {text}: write a whole number above zero")
        return int(text)

    def text(self, name: str, default: str) -> str:
        """As given."""
        return self._given.get(name.lower(), default)

    def brokers(self) -> Brokers:
        """What answers for these topics."""
        names, pattern = self._given.get("subscribe"), self._given.get("subscribepattern")
        if bool(names) == bool(pattern):
            raise ConfigError("give subscribe (topics, separated by commas) or subscribePattern, one of the two")
        return Brokers(self.conf, [name.strip() for name in names.split(",")] if names else re.compile(pattern or ""))

    def offsets(self, side: str, default: str, brokers: Brokers, first: Offsets, last: Offsets) -> Offsets:
        """`starting` or `ending` offsets."""
        timestamp = self.number(f"{side}Timestamp")
        if timestamp is not None:
            return brokers.at_timestamp(timestamp, last)
        option = f"{side}Offsets"
        return resolved(option, parse_offsets(option, self.text(option, default)), first, last)


class KafkaSource(DataSource):
    """The data source; see the module."""

    @classmethod
    def name(cls) -> str:
        """What `format()` takes."""
        return FORMAT

    def schema(self) -> str:
        """The columns of Spark's own Kafka source."""
        return DDL

    def reader(self, schema: "StructType") -> DataSourceReader:  # noqa: ARG002 - there is but one schema
        """For batches."""
        return KafkaBatchReader(self.options)

    def streamReader(self, schema: "StructType") -> DataSourceStreamReader:  # noqa: ARG002, N802 - Spark's signature
        """For streams."""
        return KafkaStreamReader(self.options)


class KafkaBatchReader(DataSourceReader):
    """Reads what is there when the query is planned."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = _Options(options)

    def partitions(self) -> list["InputPartition"]:
        """Offset ranges, some per partition if there are to be many."""
        brokers = self._options.brokers()
        try:
            first, last = brokers.offsets()
            start = self._options.offsets("starting", EARLIEST, brokers, first, last)
            end = self._options.offsets("ending", LATEST, brokers, first, last)
        finally:
            brokers.close()
        return [*ranges(start, end, self._options.least_tasks)]

    def read(self, partition: "InputPartition") -> Iterator["pa.RecordBatch"]:
        """The records of a range."""
        assert isinstance(partition, Range), "partitions() makes nothing else"
        return read_range(self._options.conf, partition, fail_on_data_loss=self._options.fail_on_data_loss)


class KafkaStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads on and on; a batch is the same whenever it is read again."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = _Options(options)
        self._brokers = self._options.brokers()
        self._target: Offsets | None = None
        self._record_bytes: float | None = None
        self._calls = 0

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Where a stream without a checkpoint begins."""
        first, last = self._brokers.offsets()
        return self._options.offsets("starting", LATEST, self._brokers, first, last)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """What comes from now on is for the next run."""
        self._target = self._brokers.offsets()[1]

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """By rows, by bytes, or none."""
        rows = self._options.number("maxOffsetsPerTrigger")
        if rows is not None:
            return ReadMaxRows(rows)
        if self._options.text("maxBytesPerTrigger", "") == _OF_QUOTA:
            quota = self._brokers.quota()
            seconds = self._options.number("triggerSeconds") or 10
            return ReadMaxBytes(int(quota * seconds * self._brokers.leaders())) if quota else ReadAllAvailable()
        size = self._options.number("maxBytesPerTrigger")
        return ReadMaxBytes(size) if size is not None else ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Where the next batch ends."""
        first, last = self._brokers.offsets()
        end = self._target or last
        self._check_loss(start, first)
        if isinstance(limit, ReadMaxRows):
            return limited(start, end, first, limit.max_rows)
        if isinstance(limit, ReadMaxBytes):
            size = self._bytes_of_record(start, end)
            return limited(start, end, first, max(int(limit.max_bytes / size), 1)) if size else end
        return end

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """For the query's progress."""
        return self._brokers.offsets()[1]

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list["InputPartition"]:
        """Offset ranges of a batch."""
        return [*ranges(start, end, self._options.least_tasks)]

    def read(self, partition: "InputPartition") -> Iterator["pa.RecordBatch"]:
        """The records of a range."""
        assert isinstance(partition, Range), "partitions() makes nothing else"
        return read_range(self._options.conf, partition, fail_on_data_loss=self._options.fail_on_data_loss)

    def __getstate__(self) -> dict[str, Any]:
        """To executors goes what they read with; connections stay here."""
        return {"_options": self._options}

    def _check_loss(self, start: Offsets, first: Offsets) -> None:
        if not self._options.fail_on_data_loss:
            return
        for topic, partition, offset in walk(start):
            begins = first.get(topic, {}).get(partition)
            if begins is None or offset < begins:
                lost = "is gone" if begins is None else f"begins at {begins} now, the stream stands at {offset}"
                words = f"{topic} partition {partition} {lost}"
                raise ClusterError(f"{words}; set failOnDataLoss to false to go on without what is lost")

    def _bytes_of_record(self, start: Offsets, end: Offsets) -> float | None:
        """Sampled now and then where most is waiting."""
        if self._record_bytes is None or self._calls % _SAMPLE_EVERY == 0:
            waiting = [(last - start.get(t, {}).get(p, 0), t, p) for t, p, last in walk(end)]
            count, topic, partition = max(waiting, default=(0, "", ""))
            if count > 0:
                offset = start.get(topic, {}).get(partition, 0)
                self._record_bytes = self._brokers.bytes_per_offset(topic, partition, offset) or self._record_bytes
        self._calls += 1
        return self._record_bytes
