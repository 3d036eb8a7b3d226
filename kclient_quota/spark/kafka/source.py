"""`spark.read` and `readStream` `.format("kclient_quota")`: Kafka without a connector of the JVM, paced by its quota.

`spark.dataSource.register(KafkaSource)` first. For `write` and `writeStream` see `sink`. Options are those of
Spark's own Kafka source where it has them; of timestamps the one for all partitions counts most, offsets least:

| option | meaning |
| --- | --- |
| kafka.* | the consumer's configuration, `kafka.bootstrap.servers` at least; kclient-quota's keys, too |
| subscribe, subscribePattern | topics, separated by commas; or a pattern. One of the two |
| startingOffsets, endingOffsets | earliest (a batch's default start), latest, JSON; ending: batches only |
| startingTimestamp, endingTimestamp | ms since 1970; a partition that has no record as young: its end |
| startingOffsetsByTimestamp, endingOffsetsByTimestamp | the same as JSON for every partition |
| failOnDataLoss | true: records that are gone end the query |
| minPartitions | at least so many tasks |
| maxOffsetsPerTrigger | of a stream: rows |
| minOffsetsPerTrigger, maxTriggerDelay | of a stream: wait for so many rows, but for so long (15m) at most |
| maxBytesPerTrigger | of a stream: bytes, `quota`: what the quota gives in a trigger interval |
| triggerSeconds | that interval (10) |
| includeHeaders | true: the column `headers` |
| includePace | true: the column `pace`, of which `observed` makes figures of the query's progress |
"""

import logging
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F  # noqa: N812 # what every Spark program calls it
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)

try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxBytes,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )

    HAS_LIMITS = True
except ImportError:  # Spark 4.1, whose Python sources cannot be told how much to read; batches can do without
    ReadAllAvailable = ReadLimit = ReadMaxBytes = ReadMaxRows = object  # type: ignore[misc, assignment] # stand-ins
    SupportsTriggerAvailableNow = object  # type: ignore[misc, assignment] # as above
    HAS_LIMITS = False

from kclient_quota.clock import SYSTEM_CLOCK, Clock
from kclient_quota.errors import ClusterError, ConfigError
from kclient_quota.spark.kafka.asking import Brokers
from kclient_quota.spark.kafka.offsets import (
    EARLIEST,
    LATEST,
    TOPIC_IDS,
    Offsets,
    Range,
    count,
    limited,
    made_anew,
    parse_offsets,
    parse_timestamps,
    parted,
    ranges,
    resolved,
    walk,
)
from kclient_quota.spark.kafka.options import Options
from kclient_quota.spark.kafka.reading import DDL, HEADERS_DDL, PACE_DDL, client_conf, read_range
from kclient_quota.spark.kafka.sink import KafkaBatchWriter, KafkaStreamWriter

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.datasource import InputPartition
    from pyspark.sql.types import StructType

logger = logging.getLogger("kclient_quota")

FORMAT: Final = "kclient_quota"
_OF_QUOTA: Final = "quota"
_SAMPLE_EVERY: Final = 16
_LONGEST_DELAY_MS: Final = 900_000
_KNOWN: Final = (
    *("subscribe", "subscribePattern", "startingOffsets", "endingOffsets", "startingTimestamp", "endingTimestamp"),
    *("startingOffsetsByTimestamp", "endingOffsetsByTimestamp", "minOffsetsPerTrigger", "maxTriggerDelay"),
    *("failOnDataLoss", "minPartitions", "maxOffsetsPerTrigger", "maxBytesPerTrigger", "triggerSeconds"),
    *("includeHeaders", "includePace"),
)


class SourceOptions(Options):
    """The options of the source, checked."""

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(options, _KNOWN)
        self.conf = client_conf(self.given)
        self.fail_on_data_loss = self.flag("failOnDataLoss", default=True)
        self.headers = self.flag("includeHeaders", default=False)
        self.pace = self.flag("includePace", default=False)
        self.least_tasks = self.number("minPartitions") or 0
        for name in ("maxOffsetsPerTrigger", "triggerSeconds"):
            self.number(name)
        self.least_rows = self.number("minOffsetsPerTrigger") or 0
        delay_ms = self.duration_ms("maxTriggerDelay")
        self.longest_delay_ms = _LONGEST_DELAY_MS if delay_ms is None else delay_ms
        if self.text("maxBytesPerTrigger", _OF_QUOTA) != _OF_QUOTA:
            self.number("maxBytesPerTrigger")

    def read(self, wanted: "InputPartition") -> Iterator["pa.RecordBatch"]:
        """The records of a range, with the columns that are asked for."""
        if not isinstance(wanted, Range):  # Spark plans one partition of its own where there are none
            return iter(())
        return read_range(
            self.conf, wanted, fail_on_data_loss=self.fail_on_data_loss, headers=self.headers, pace=self.pace
        )

    def ddl(self) -> str:
        """The columns."""
        return ", ".join([DDL, *[HEADERS_DDL] * self.headers, *[PACE_DDL] * self.pace])

    def brokers(self) -> Brokers:
        """What answers for these topics."""
        names, pattern = self.text("subscribe"), self.text("subscribePattern")
        if bool(names) == bool(pattern):
            raise ConfigError("give subscribe (topics, separated by commas) or subscribePattern, one of the two")
        try:
            topics = [name.strip() for name in names.split(",")] if names else re.compile(pattern)
        except re.error as error:
            raise ConfigError(f"subscribePattern {pattern}: {error}; write a regular expression") from error
        return Brokers(self.conf, topics)

    def offsets(self, side: str, default: str, brokers: Brokers, first: Offsets, last: Offsets) -> Offsets:
        """`starting` or `ending` offsets."""
        timestamp = self.number(f"{side}Timestamp")
        if timestamp is not None:
            return brokers.at_timestamps({t: dict.fromkeys(of, timestamp) for t, of in last.items()}, last)
        option = f"{side}OffsetsByTimestamp"
        if self.text(option):
            return brokers.at_timestamps(parse_timestamps(option, self.text(option), last), last)
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
        return SourceOptions(self.options).ddl()

    def reader(self, schema: "StructType") -> DataSourceReader:  # noqa: ARG002 - there is but one schema
        """For batches."""
        return KafkaBatchReader(self.options)

    def streamReader(self, schema: "StructType") -> DataSourceStreamReader:  # noqa: ARG002, N802 - Spark's signature
        """For streams.

        Raises:
            ConfigError: it is Spark 4.1.
        """
        if not HAS_LIMITS:
            raise ConfigError(
                "streams of topics need Spark 4.2; with an older one read with Spark's own connector (--connector jvm)"
            )
        return KafkaStreamReader(self.options)

    def writer(self, schema: "StructType", overwrite: bool) -> DataSourceWriter:
        """Of batches; see `sink`."""
        if overwrite:
            raise ConfigError('a topic cannot be overwritten: write with mode("append")')
        return KafkaBatchWriter(self.options, schema)

    def streamWriter(self, schema: "StructType", overwrite: bool) -> DataSourceStreamWriter:  # noqa: ARG002, N802 - Spark's
        """Of streams; see `sink`. The output mode `complete` writes everything anew in every batch."""
        return KafkaStreamWriter(self.options, schema)


def observed(frame: "DataFrame", name: str = FORMAT) -> "DataFrame":
    """`frame`, read with `includePace`, without its column `pace`, which becomes figures of the query's progress.

    `query.lastProgress["observedMetrics"][name]` holds bytes, throttles and throttle_ms of the batch's tasks together,
    and the quota (bytes per second and broker; null: none, or not known).
    """
    sums = [F.sum(f"pace.{each}").alias(each) for each in ("bytes", "throttles", "throttle_ms")]
    return frame.observe(name, *sums, F.max("pace.quota").alias("quota")).drop("pace")


def _with_ids(offsets: Offsets, ids: dict[str, str]) -> dict[str, Any]:
    return {**offsets, TOPIC_IDS: ids} if ids else dict(offsets)


class KafkaBatchReader(DataSourceReader):
    """Reads what is there when the query is planned."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = SourceOptions(options)

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
        return self._options.read(partition)


class KafkaStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads on and on; a batch is the same whenever it is read again."""

    def __init__(self, options: Mapping[str, str], clock: Clock = SYSTEM_CLOCK) -> None:
        self._options = SourceOptions(options)
        self._clock = clock
        self._last_batch_ms: int | None = None
        self._brokers = self._options.brokers()
        self._target: Offsets | None = None
        self._record_bytes: float | None = None
        self._calls = 0

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Where a stream without a checkpoint begins."""
        first, last = self._brokers.offsets()
        return self._identified(self._options.offsets("starting", LATEST, self._brokers, first, last))

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
        known, ids = parted(start)
        first, last = self._brokers.offsets()
        end = self._identified(self._target or last)
        end, ids_now = parted(end)
        self._check_loss(known, first)
        known = self._without_anew(known, ids, ids_now, is_told=True)
        if self._waits_for_more(count(known, end, first)):
            return start
        return _with_ids(self._within(limit, known, end, first), ids_now)

    def _within(self, limit: ReadLimit, start: Offsets, end: Offsets, first: Offsets) -> Offsets:
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
        (begin, before), (until, now) = parted(start), parted(end)
        begin = self._without_anew(begin, before, now, is_told=False)
        return [*ranges(begin, until, self._options.least_tasks)]

    def read(self, partition: "InputPartition") -> Iterator["pa.RecordBatch"]:
        """The records of a range."""
        return self._options.read(partition)

    def __getstate__(self) -> dict[str, Any]:
        """To executors goes what they read with; connections stay here."""
        return {"_options": self._options}

    def _identified(self, offsets: Offsets) -> dict[str, Any]:
        """With the ids of the topics, so that a batch knows a topic that was made anew."""
        return _with_ids(offsets, self._brokers.topic_ids(offsets))

    def _without_anew(self, start: Offsets, before: dict[str, str], now: dict[str, str], *, is_told: bool) -> Offsets:
        """`start` without topics that were made anew: they are read from where they begin.

        Raises:
            ClusterError: there are such, and nothing may be lost.
        """
        anew = made_anew(before, now)
        if anew and self._options.fail_on_data_loss:
            raise ClusterError(
                f"topic {anew[0]} was deleted and made anew; what it held before may be lost: set failOnDataLoss to "
                "false to go on with the new one from its beginning"
            )
        if anew and is_told:
            logger.warning("topics %s were made anew and are read from their beginning", ", ".join(anew))
        return {topic: of for topic, of in start.items() if topic not in anew}

    def _waits_for_more(self, rows: int) -> bool:
        """Whether there are too few for a batch; not for ever, and not with Trigger.AvailableNow."""
        now_ms = self._clock.now_ms()
        is_due = self._last_batch_ms is None or now_ms - self._last_batch_ms >= self._options.longest_delay_ms
        if rows < self._options.least_rows and not is_due and self._target is None:
            return True
        self._last_batch_ms = now_ms
        return False

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
