"""Talking to Kafka for the data source, through our own consumer: offsets for the driver, records for executors."""

import logging
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from itertools import chain
from typing import Any, Final

import numpy as np
import pyarrow as pa

from kclient_quota.clients import KafkaError, KafkaException, TopicPartition
from kclient_quota.clients.consumer import Consumer
from kclient_quota.clock import SYSTEM_CLOCK
from kclient_quota.cluster.brokers import topic_ids
from kclient_quota.cluster.client import ClusterClient
from kclient_quota.cluster.limits import discover_limit
from kclient_quota.errors import ClusterError, ConfigError
from kclient_quota.spark.kafka.offsets import Offsets, Range

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
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int"
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
_ASKING: Final = {"quota.backoff": "off", "enable.metrics.push": False}
_REFUSALS: Final = (KafkaError._AUTHENTICATION, KafkaError._SSL, KafkaError._RESOLVE)  # noqa: SLF001 - public names
_LISTEN: Final = 10
_LISTEN_S: Final = 0.01
_SAMPLE_BYTES: Final = 65_536
_AT_ONCE: Final = 10_000
_WAIT_S: Final = 0.25
_TIMEOUT_S: Final = 30.0
_SILENT_S: Final = 120.0
_LATEST, _EARLIEST = -1, -2
"""What Kafka takes for times of a log's two ends."""


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


class Brokers:
    """Asks for offsets; its consumer reads nothing but samples.

    Args:
        conf: of `client_conf`.
        topics: names, or a pattern that matches names as a whole.
    """

    def __init__(self, conf: Mapping[str, Any], topics: list[str] | re.Pattern[str]) -> None:
        self._conf = dict(conf)
        self._timeout_s = min(_TIMEOUT_S, int(conf.get("socket.timeout.ms", _TIMEOUT_S * 1000)) / 1000)
        self._topics = topics
        self._consumer: Consumer | None = None
        self._cluster: ClusterClient | None = None
        self._refused = ""

    def offsets(self) -> tuple[Offsets, Offsets]:
        """Where every partition's log begins and ends (at its last stable offset, unless uncommitted is to be read).

        Raises:
            ClusterError: the brokers do not answer, or not this client, or there is no such topic.
        """
        first: Offsets = {}
        last: Offsets = {}
        try:
            there = self._partitions()
            for found, at in ((first, _EARLIEST), (last, _LATEST)):
                asked = [TopicPartition(topic, number, at) for topic, numbers in there.items() for number in numbers]
                for part in self._asking().offsets_for_times(asked, timeout=self._timeout_s):
                    if part.error is not None:
                        raise KafkaException(part.error)  # noqa: TRY301 - one message for all of them
                    found.setdefault(part.topic, {})[str(part.partition)] = part.offset
        except KafkaException as error:
            what = f"the offsets of {self._named()} at {self._conf['bootstrap.servers']}{self._refusal()}"
            raise failed(what, error) from error
        return first, last

    def topic_ids(self, topics: Iterable[str]) -> dict[str, str]:
        """Ids of topics, which a topic of the same name that was made anew does not have; empty where nobody tells."""
        try:
            if self._cluster is None:
                self._cluster = ClusterClient(self._conf, SYSTEM_CLOCK)
            found = topic_ids(self._cluster, topics, timeout_ms=round(self._timeout_s * 1000))
        except (ClusterError, ConfigError) as error:  # such as Kerberos, which only librdkafka speaks
            logger.debug("ids of topics are not known: %s", error)
            return {}
        return {topic: str(each) for topic, each in found.items() if each.int}

    def at_timestamps(self, wanted: Offsets, last: Offsets) -> Offsets:
        """The first offset of every partition that is not older than its `wanted` ms; its end where there is none."""
        asked = [TopicPartition(t, int(p), at_ms) for t, of in wanted.items() for p, at_ms in of.items()]
        try:
            found = self._asking().offsets_for_times(asked, timeout=self._timeout_s)
        except KafkaException as error:
            raise failed(f"the offsets of {self._named()} by time", error) from error
        result: Offsets = {}
        for part in found:
            end = last[part.topic][str(part.partition)]
            result.setdefault(part.topic, {})[str(part.partition)] = end if part.offset < 0 else part.offset
        return result

    def bytes_per_offset(self, topic: str, partition: str, offset: int) -> float | None:
        """About how large records are from there on; None when none could be read.

        Raises:
            ClusterError: they cannot be read.
        """
        sizes = {"fetch.message.max.bytes": _SAMPLE_BYTES, "queued.max.messages.kbytes": _SAMPLE_BYTES // 1024}
        conf = {**self._conf, **_ASKING, **sizes, "auto.offset.reset": "earliest"}
        with closing(Consumer(conf)) as consumer:
            consumer.assign([TopicPartition(topic, int(partition), offset)])
            found = [each for each in consumer.consume(100, 2.0) if each.error() is None]
        if not found:
            return None
        return sum(len(each.value() or b"") + len(each.key() or b"") for each in found) / len(found)

    def quota(self) -> float | None:
        """Bytes per second and broker that this client may fetch; None without a limit, or when nobody tells."""
        by_hand = self._conf.get("consumer_byte_rate")
        if by_hand:
            return float(by_hand)
        conf = {key: value for key, value in self._conf.items() if not key.startswith("quota.")}
        user = conf.get("sasl.username")
        return discover_limit(conf, user, str(conf["client.id"]), 5_000).consumer_byte_rate

    def leaders(self) -> int:
        """How many brokers lead partitions of these topics."""
        topics = self._asking().list_topics(timeout=self._timeout_s).topics
        names = self._matching(list(topics))
        return len({part.leader for name in names for part in topics[name].partitions.values()}) or 1

    def close(self) -> None:
        """Let go of the connections."""
        if self._cluster is not None:
            self._cluster.close()
            self._cluster = None
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None

    def _asking(self) -> Consumer:
        if self._consumer is None:
            # What librdkafka would log, again and again, comes as one error of the question.
            self._consumer = Consumer({"log_level": 0, **self._conf, **_ASKING, "error_cb": self._on_error})
        return self._consumer

    def _on_error(self, error: KafkaError) -> None:
        if error.code() in _REFUSALS:
            self._refused = f" ({error.str()})"

    def _refusal(self) -> str:
        """What a request that runs into its timeout does not say; empty when the brokers have refused nothing."""
        for _ in range(_LISTEN):
            if self._consumer is None or self._refused:
                break
            self._consumer.poll(_LISTEN_S)
        return self._refused

    def _partitions(self) -> dict[str, list[int]]:
        topics = self._asking().list_topics(timeout=self._timeout_s).topics
        found = {}
        for name in self._matching(list(topics)):
            if name not in topics:  # asked for by name, brokers tell what is not there from what is not permitted
                topics = {**topics, **self._asking().list_topics(name, timeout=self._timeout_s).topics}
            error = topics[name].error
            if error is not None:
                raise KafkaException(error)
            found[name] = sorted(topics[name].partitions)
        return found

    def _matching(self, names: list[str]) -> list[str]:
        if isinstance(self._topics, re.Pattern):
            return sorted(name for name in names if self._topics.fullmatch(name))
        return self._topics

    def _named(self) -> str:
        return self._topics.pattern if isinstance(self._topics, re.Pattern) else ", ".join(self._topics)


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
