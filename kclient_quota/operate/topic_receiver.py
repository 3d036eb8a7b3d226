"""Client telemetry out of a Kafka topic: read, handed to sinks, committed when these have done with it."""

from __future__ import annotations

import logging
from collections import OrderedDict, deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from kclient_telemetry.client.subscription import DEFAULT_PUSH_INTERVAL_MS
from kclient_telemetry.errors import TelemetryError
from kclient_telemetry.messages import uuid_from_text
from kclient_telemetry.otlp import parse
from kclient_telemetry.receiver.fanout import ReceivedPush
from kclient_telemetry.receiver.plugin import (
    ENRICHMENT,
    PUSH_INTERVAL_HEADER,
    TERMINATING_HEADER,
    AuthorizableRequestContext,
    ClientTelemetryContext,
    ClientTelemetryPayload,
)
from kclient_telemetry.receiver.rows import text_attributes
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from kclient_quota.clients import KafkaError, KafkaException, TopicPartition
from kclient_quota.errors import ClusterError
from kclient_quota.operate.late_stamps import LateStamps

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from opentelemetry.proto.metrics.v1.metrics_pb2 import ResourceMetrics

    from kclient_quota.clients.consumer import Consumer
    from kclient_quota.clock import Clock

logger = logging.getLogger("kclient_quota")

PUSH_INTERVALS_MS: Final = range(1, 3_600_001)
"""What brokers may ask for. A record that does not say how often its client pushes counts as of Kafka's default."""
FULL_BYTES: Final = 32 << 20
"""When a sink has so much to deal with, no more is read."""
_POLL_S = 0.2
_COMMIT_MS = 2_000
_JOINS_MS = 5_000
"""In so long a group gives out its partitions, unless it waits for somebody."""
_HAND_OVER_MS = 3_000
"""So long a rebalance waits for what sinks have begun; a collector that is away holds up no group for longer."""
_GIVE_UP_MS = 60_000
"""To who has got nothing for so long the end that it was told of is not to come."""
_JOIN_MS = 120_000
"""So long a group is waited for: one of whose members two were killed, one after the other, takes two sessions."""
_AGAIN_MS = 60_000
_MISSING: Final = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "; READ on the topic is needed",
    KafkaError.GROUP_AUTHORIZATION_FAILED: "; READ on the group is needed, which is receive's --group, and for top and "
    "doctor begins with kclient-quota-watch-",
}


@dataclass(slots=True)
class Sink:
    """Something that takes pushes.

    Attributes:
        accept: hand a push over.
        waiting: how many pushes it has not dealt with yet, and about how many bytes they take.
        lost: how many it was given and could not deal with; asked after `waiting`.
        refused: how many whoever it hands them on to does not want; these are not tried again.
        points_refused: how many points of pushes that were taken.
        complete: deal with what it has, a file under way included, in so many milliseconds at most; it goes on then.
        is_remote: what it hands on to may be away.
    """

    accept: Callable[[ReceivedPush], None]
    waiting: Callable[[], tuple[int, int]]
    lost: Callable[[], int] = lambda: 0
    refused: Callable[[], int] = lambda: 0
    points_refused: Callable[[], int] = lambda: 0
    complete: Callable[[int], None] = lambda timeout_ms: None  # noqa: ARG005 - as it is called
    is_remote: bool = False


@dataclass(slots=True)
class Received:
    """What every record was: `unreadable`, or of one push and more."""

    records: int = 0
    pushes: int = 0
    unreadable: int = 0


def unreadable(error: KafkaError) -> ClusterError:
    """That the topic cannot be read, with the right that is missing for it, if it is one."""
    said = f"{error.str().rstrip('.')}{_MISSING.get(error.code(), '')}"
    return ClusterError(f"the topic cannot be read: {said}", error_code=error.code())


def pushes_of_record(
    value: bytes, received_unix_ms: int, headers: Sequence[tuple[str, bytes | None]] = ()
) -> list[ReceivedPush]:
    """The pushes that a record holds, with what their receiver knew about the client: one, or of several clients.

    Args:
        value: an OTLP ExportMetricsServiceRequest, as `TopicWriter` and OpenTelemetry's Kafka exporter write it. A
            collector puts what many clients have pushed into one.
        received_unix_ms: when it came.
        headers: of the record, as `TopicWriter` writes them.

    Raises:
        InvalidPayloadError: it is none.
    """
    by_client: dict[tuple[tuple[str, str], ...], list[ResourceMetrics]] = {}
    for resource_metrics in parse(value).resource_metrics:
        resource = text_attributes(resource_metrics.resource.attributes)
        known = tuple((name, resource[name]) for name in ENRICHMENT if name in resource)
        by_client.setdefault(known, []).append(resource_metrics)
    if len(by_client) <= 1:
        return [_push(value, dict(next(iter(by_client), ())), received_unix_ms, headers)]
    return [
        _push(
            ExportMetricsServiceRequest(resource_metrics=of).SerializeToString(), dict(who), received_unix_ms, headers
        )
        for who, of in by_client.items()
    ]


def _push(
    value: bytes, known: dict[str, str], received_unix_ms: int, headers: Sequence[tuple[str, bytes | None]]
) -> ReceivedPush:
    try:
        instance = uuid_from_text(known.get("client_instance_id", "A" * 22))
    except ValueError:
        instance = uuid_from_text("A" * 22)
    broker = known.get("broker_id", "")
    sender = AuthorizableRequestContext(
        client_id=known.get("client_id"),
        client_address=known.get("client_source_address"),
        principal=known.get("principal", ""),
        client_software_name=known.get("client_software_name"),
        client_software_version=known.get("client_software_version"),
        broker_id=int(broker) if broker.isdecimal() and len(broker) < 10 else None,  # noqa: PLR2004 - 32 bits
        cluster_id=known.get("cluster_id"),
    )
    said = dict(headers)
    text = said.get(PUSH_INTERVAL_HEADER) or b""
    told_ms = int(text) if text.isdigit() and len(text) < 10 else 0  # noqa: PLR2004 - 32 bits
    interval_ms = told_ms if told_ms in PUSH_INTERVALS_MS else DEFAULT_PUSH_INTERVAL_MS
    payload = ClientTelemetryPayload(instance, said.get(TERMINATING_HEADER) == b"true", value)
    return ReceivedPush(ClientTelemetryContext(interval_ms, sender), payload, known, value, received_unix_ms)


class TopicReceiver:
    """Reads a topic until it is stopped. What a sink has not dealt with is read again after a crash.

    Args:
        consumer: subscribed, without automatic commits, with `enable.partition.eof`.
        sinks: where pushes go.
        clock: for commits and idleness.
        is_joined: asked where the consumer has no partitions: whether that is all that its group gives it.
    """

    def __init__(
        self, consumer: Consumer, sinks: Sequence[Sink], clock: Clock, is_joined: Callable[[], bool] = lambda: True
    ) -> None:
        self._consumer = consumer
        self._sinks = tuple(sinks)
        self._clock = clock
        self._is_joined = is_joined
        self._ended: set[tuple[str, int]] = set()
        self._handed = 0
        self._positions: dict[tuple[str, int], int] = {}
        # positions that moved while so much had been handed on: of each record, so that all before a lost one is done
        self._checkpoints: deque[tuple[int, dict[tuple[str, int], int]]] = deque()
        self._done: dict[tuple[str, int], int] = {}  # positions that may be committed
        # what was handed by then, and its time; a dict looks for its first anew through all that have been removed
        self._under_way: OrderedDict[tuple[str, int, int], tuple[int, int]] = OrderedDict()
        # handed on while their partition was away, or before it was read again: when each came, by offset
        self._handed_on: dict[tuple[str, int], dict[int, int]] = {}
        self._checked_ms = clock.now_ms()
        self._paused: list[Any] = []
        self._late_stamps = LateStamps(consumer, clock)
        self._unreadable_told = 0, 0  # when it was told of, and how many there were by then
        self.received = Received()

    def run(self, stopped: Callable[[], bool], *, idle_ms: int | None = None) -> bool:
        """Receive until `stopped`, or until nothing has come for `idle_ms` and what was there has been read.

        Nor is it idle while sinks get on with what they have: a slow disk may be minutes behind. When that end is not
        reached, be it that a sink is full and takes nothing, it is a minute without anything, two where its group
        gives it no partitions, and a warning.

        Returns:
            whether it went on so long: not when a sink has lost something, or when the end was not reached.

        Raises:
            ClusterError: the consumer failed for good.
        """
        began_ms = last_ms = self._clock.now_ms()
        is_told, was_joined = False, self._is_joined()
        left_bytes = 0
        while not stopped():
            if self.lost():
                return False
            self._hold_or_go_on()
            message = self._consumer.poll(_POLL_S)
            if message is not None and self._take(message):
                last_ms = self._clock.now_ms()
            self._commit()
            now_ms, is_joined = self._clock.now_ms(), self._is_joined()
            if is_joined and not was_joined:
                last_ms = now_ms
            was_joined = is_joined
            if not is_told and now_ms - began_ms >= _JOINS_MS and not (self.received.records or is_joined):
                is_told = True
                logger.warning(
                    "the group has not given out its partitions yet; a member that was killed is waited for, as long "
                    "as its session"
                )
            before, left_bytes = left_bytes, sum(sink.waiting()[1] for sink in self._sinks)
            if left_bytes < before:
                last_ms = now_ms
            if idle_ms is None or now_ms - last_ms < idle_ms:
                continue
            if self.has_caught_up():
                return True
            if (still_ms := now_ms - last_ms) >= (_GIVE_UP_MS if is_joined else _JOIN_MS):
                self._say_why_it_ends(still_ms // 1000)
                return False
        return True

    def _say_why_it_ends(self, of_s: int) -> None:
        if self._paused:  # nothing was asked for
            logger.warning("reading ends: what was read has not been taken for %d s, and its end was not reached", of_s)
        else:
            logger.warning("reading ends: nothing has come for %d s, and its end was not reached", of_s)

    def has_caught_up(self) -> bool:
        """Whether the end of each partition has been reached once; a group takes seconds to give them out."""
        assigned = {(part.topic, part.partition) for part in self._consumer.assignment()}
        for where in assigned - self._ended:
            # librdkafka tells of an end that it finds nothing at, and somebody may write all the time
            known: Any = self._consumer.get_watermark_offsets(TopicPartition(*where), cached=True)
            if known is not None and 0 <= known[1] <= self._positions.get(where, -1):
                self._ended.add(where)
        return assigned <= self._ended and bool(assigned or self._is_joined())

    def finish(self) -> None:
        """Commit what sinks have dealt with in the end."""
        self._commit_done(asynchronous=False)

    def hand_over(self, partitions: Sequence[TopicPartition]) -> None:
        """These are being taken away: have sinks deal with what was read, and commit it.

        Otherwise whoever gets them next, ourselves mostly, would read all since the last complete file once more: with
        files of a minute each rebalance doubled up to a minute of pushes, whose deltas a page or a collector adds up.
        What cannot be dealt with in time is passed over when it comes back to us; another member hands it on as well.
        """
        end_ms = self._clock.now_ms() + _HAND_OVER_MS
        for sink in sorted(self._sinks, key=lambda sink: sink.is_remote):  # a collector may take all the time there is
            sink.complete(max(0, end_ms - self._clock.now_ms()))
        self.finish()
        self.forget(partitions)

    def forget(self, partitions: Sequence[TopicPartition]) -> None:
        """These are gone: where we were in them is no longer ours to commit, others may be further on."""
        gone = {(part.topic, part.partition) for part in partitions}
        self._paused = [part for part in self._paused if (part.topic, part.partition) not in gone]
        self._forget_positions(gone)

    def _forget_positions(self, gone: set[tuple[str, int]]) -> None:
        kept = (positions for _, positions in self._checkpoints)
        for positions in (self._positions, self._done, *kept):
            for where in gone & positions.keys():
                del positions[where]

    def left(self) -> int:
        """How many pushes the slowest sink has not dealt with, or could not; they are read again next time."""
        return max((sink.waiting()[0] + sink.lost() for sink in self._sinks), default=0)

    def lost(self) -> int:
        """How many pushes sinks were given and could not deal with."""
        return sum(sink.lost() for sink in self._sinks)

    def refused(self) -> int:
        """How many pushes whoever sinks hand them on to did not want."""
        return sum(sink.refused() for sink in self._sinks)

    def points_refused(self) -> int:
        """How many points of pushes that were taken they did not want."""
        return sum(sink.points_refused() for sink in self._sinks)

    def _take(self, message: Any) -> bool:
        error = message.error()
        if error is not None:
            if error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - its name
                self._ended.add((message.topic(), message.partition()))
                self._late_stamps.end(message)
                return False
            # librdkafka asks again and again; who has read before may be given back the right to
            if error.fatal() or (error.code() in _MISSING and not self.received.records):
                raise unreadable(error)
            logger.warning("receiving client telemetry: %s%s", error, _MISSING.get(error.code(), ""))
            return False
        topic, partition, offset = where = message.topic(), message.partition(), message.offset()
        if offset < self._positions.get((topic, partition), 0):  # a topic that was made anew has no offsets of before
            self._forget_positions({(topic, partition)})
        ours = self._handed_on.get((topic, partition), {})
        if ours and (topic, partition) not in self._positions:  # it has come back; others may be further on
            ours = {each: came_ms for each, came_ms in ours.items() if each >= offset}
            self._handed_on[topic, partition] = ours
        self._positions[topic, partition] = offset + 1
        _, unix_ms = message.timestamp()
        self._late_stamps.record(message, unix_ms)
        # of a topic that was made anew it has another time
        if unix_ms not in {self._under_way.get(where, (0, None))[1], ours.pop(offset, None)}:
            self._receive(message, where, unix_ms)
        if not self._checkpoints or self._checkpoints[-1][0] != self._handed:
            self._checkpoints.append((self._handed, {}))
        self._checkpoints[-1][1][topic, partition] = offset + 1
        return True

    def _receive(self, message: Any, where: tuple[str, int, int], unix_ms: int) -> None:
        self.received.records += 1
        try:
            pushes = pushes_of_record(message.value() or b"", unix_ms, message.headers() or ())
        except TelemetryError as reason:
            self.received.unreadable += 1
            self._say_unreadable(where, reason)
        else:
            self._hand_on(pushes)
            self._under_way[where] = self._handed, unix_ms
            self._under_way.move_to_end(where)  # of a topic that was made anew it may be there

    def _hand_on(self, pushes: Sequence[ReceivedPush]) -> None:
        for push in pushes:
            for sink in self._sinks:
                sink.accept(push)
        self._handed += len(pushes)
        self.received.pushes += len(pushes)

    def _say_unreadable(self, where: tuple[str, int, int], reason: TelemetryError) -> None:
        """A line a minute: with a wrong topic it would be one for each of its records."""
        now_ms = self._clock.now_ms()
        told_ms, told = self._unreadable_told
        if told and now_ms - told_ms < _AGAIN_MS:
            return
        before = self.received.unreadable - told - 1
        more = f"; {before} before it were not, either" if before else ""
        logger.warning("%s[%d]@%d is no client telemetry and is passed over: %s%s", *where, reason, more)
        self._unreadable_told = now_ms, self.received.unreadable

    def _hold_or_go_on(self) -> None:
        """Polling goes on while sinks are full, so that the group does not lose us; but nothing is fetched."""
        is_full = any(sink.waiting()[1] > FULL_BYTES for sink in self._sinks)
        if not (is_full or self._paused):
            return
        assigned = self._consumer.assignment()
        if is_full:  # a rebalance may have brought more of them since
            if new := [part for part in assigned if part not in self._paused]:
                self._consumer.pause(new)
                self._paused += new
        else:
            self._consumer.resume([part for part in assigned if part in self._paused])
            self._paused = []

    def _commit(self) -> None:
        now_ms = self._clock.now_ms()
        if now_ms - self._checked_ms < _COMMIT_MS:
            return
        self._checked_ms = now_ms
        self._commit_done(asynchronous=True)

    def _commit_done(self, *, asynchronous: Literal[True, False]) -> None:
        """Commit the last checkpoint of which no sink has anything left; sinks deal with pushes in their order.

        Files take none behind one that they have lost, so that all before it is done. Collectors are given others.
        """
        left = self.left()
        if any(sink.lost() for sink in self._sinks if sink.is_remote):
            return
        handed = -1
        while self._checkpoints and self._checkpoints[0][0] <= self._handed - left:
            handed, positions = self._checkpoints.popleft()
            self._done.update(positions)
        while self._under_way and next(iter(self._under_way.values()))[0] <= handed:
            (topic, partition, offset), (_, unix_ms) = self._under_way.popitem(last=False)
            if self._positions.get((topic, partition), 0) <= offset:  # not read since: ours to pass over, not to commit
                self._handed_on.setdefault((topic, partition), {})[offset] = unix_ms
        if handed < 0:
            return
        mine = {(part.topic, part.partition) for part in self._consumer.assignment()}
        offsets = [TopicPartition(*where, offset) for where, offset in self._done.items() if where in mine]
        if not offsets:
            return
        try:
            self._consumer.commit(offsets=offsets, asynchronous=asynchronous)
        except KafkaException as error:  # in the middle of a rebalance, say: whoever comes next reads it again
            logger.warning("offsets of client telemetry were not committed: %s", error)
