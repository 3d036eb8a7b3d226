"""Which client of librdkafka's fetches: the consumer's own, or a second one whose sizes fit the quota.

librdkafka fixes its fetch and queue sizes when a client is made, and a quota may come, go and change at any time. So
when the sizes that there are will not do, partitions of the consumer's own client are paused for good, what it has
prefetched is held, and a second plain client, assigned the same partitions at the same offsets, fetches from then on;
until that in turn does not fit. The consumer's own stays the member of the group: it joins, heartbeats, commits and
serves rebalances, and is polled beside the other one. What is fetched twice is the one fetch that is on its way when
sizes change.
"""

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    OFFSET_INVALID,
    OFFSET_STORED,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)

from kclient_quota.clients.agents import CConsumer
from kclient_quota.clients.calls import CallApart, interruptible
from kclient_quota.clients.consumer.receiving.held import Partition, key_of
from kclient_quota.clients.consumer.receiving.listening import STATISTICS_MS
from kclient_quota.clients.librdkafka.statistics_schedule import told_ms
from kclient_quota.clock import unix_ms
from kclient_quota.config import DEFAULT_CLIENT_ID, is_true
from kclient_quota.pacing.fetching.fetch_sizes import FetchSizes

logger = logging.getLogger("kclient_quota")

COMMITTED_S: Final = 5.0
EARLIEST: Final = {"earliest", "smallest", "beginning"}
LATEST: Final = {"latest", "largest", "end"}
_NOT_TOLD: Final = "Failed to fetch committed offsets"
"""How librdkafka begins to say that it could not ask the group where partitions begin. It does not ask again."""
_PASSES: Final = frozenset(
    {
        KafkaError.NOT_COORDINATOR,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError._TRANSPORT,  # noqa: SLF001 - its name, as the next ones
        KafkaError._TIMED_OUT,  # noqa: SLF001
        KafkaError._TIMED_OUT_QUEUE,  # noqa: SLF001
    }
)
_MEMBERS_OWN: Final = ("on_commit", "group.instance.id", "statistics.interval.ms", "error_cb")


def made_apart(conf: dict[str, Any]) -> CConsumer:
    """A plain consumer, made in a thread of its own, where no signal's handler runs.

    While it reads a configuration confluent_kafka takes a handler's exception for a wrong name or value, and says
    TypeError: the Ctrl-C would be lost, and the application's `poll()` fail with an error that is none.
    """
    made: list[CConsumer] = []
    call = CallApart(lambda: made.append(CConsumer(conf)))
    while not call.wait(1):
        logger.debug("A client that fetches is still being made")
    call.result()
    return made.pop()


class Fetching(CConsumer):
    """confluent_kafka's Consumer whose messages may come by way of another one.

    `_starts` tells where the application has had partitions begun; where it leaves that to the group they are missing.
    `_asked` are those of which the other client has had to ask the group.
    """

    _kq_fetcher: CConsumer | None = None
    _kq_starts: dict[Partition, int]
    _kq_asked: set[Partition]
    _kq_anew: set[Partition]  # assigned, or gone with what was held of them, since anything has come of them
    _kq_was_not_told = False
    _kq_paused: set[Partition]
    _kq_paused_by_us: list[TopicPartition]  # as more is held than there is room for
    _kq_resting: frozenset[Partition] = frozenset()  # not fetched while others have their turns
    _kq_turns: frozenset[Partition] = frozenset()  # what is to rest from the next fetch on
    _kq_is_cooperative = False
    _kq_times_assigned = 0
    _kq_may_differ = True  # whether what is assigned may be other than what the other client fetches
    _kq_begun_s = 0.0  # when partitions were begun last, in the time of the wall clock, as statistics tell it
    _kq_reset = "latest"
    _kq_tells_ends = False
    _kq_said_not_made = False
    _kq_filling = 0  # the thread that is within librdkafka's poll, or closes
    _kq_put_off: Callable[[], object] | None = None

    def _kq_prepare_fetching(self, conf: Mapping[str, Any], events: Callable[[Any], None]) -> None:
        """Remember how to make another client, by the final configuration of this one; `events` takes what it says."""
        self._kq_starts = {}
        self._kq_asked, self._kq_anew = set(), set()
        self._kq_paused, self._kq_paused_by_us = set(), []
        self._kq_fetcher_events = events
        self._kq_fetcher_conf = {key: value for key, value in conf.items() if key not in _MEMBERS_OWN}
        self._kq_reset = str(conf.get("auto.offset.reset", self._kq_reset)).lower()
        self._kq_tells_ends = is_true(conf.get("enable.partition.eof", False)) or self._kq_reset == "error"
        strategy = str(conf.get("partition.assignment.strategy", ""))
        self._kq_is_cooperative = "cooperative" in strategy or str(conf.get("group.protocol", "")).lower() == "consumer"

    # In place of the plain client's --------------------------------------------------------------------------------

    def _kq_pull(self, count: int, timeout_s: float) -> list[Message]:
        fetcher = self._kq_fetcher
        if fetcher is None:
            return self._kq_consume(count, timeout_s)
        return self._kq_told(self._kq_within(fetcher.consume, count, timeout_s) or [])

    def _kq_consume(self, count: int, timeout_s: float) -> list[Message]:
        """Of the consumer's own client."""
        return self._kq_within(super().consume, count, timeout_s) or []

    def _kq_within(self, call: Callable[..., Any], *args: Any) -> Any:
        """Call librdkafka. What a callback closes meanwhile is closed after that, and this returns None.

        Its close waits until somebody lets go what it has in hand for a batch: in the midst of that for ever. And in
        the midst of a `poll()` it does not commit.
        """
        me = threading.get_ident()
        is_inner = self._kq_filling == me
        close = None
        try:
            self._kq_filling = me
            found = interruptible(call, *args)
        finally:
            if not is_inner:
                self._kq_filling = 0
                close, self._kq_put_off = self._kq_put_off, None
            if close is not None:
                close()
        return found if close is None else None

    def _kq_pull_one(self, timeout_s: float) -> Message | None:
        fetcher = self._kq_fetcher
        found: Message | None = self._kq_within(super().poll if fetcher is None else fetcher.poll, timeout_s)
        if fetcher is not None and found is not None and not self._kq_told([found]):
            return None
        return found

    def _kq_positions(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        return super().position(partitions) if self._kq_fetcher is None else self._kq_fetcher.position(partitions)

    def _kq_rest(self, resting: frozenset[Partition]) -> None:
        """Fetch nothing of these until it is their turn again."""
        before, self._kq_turns = self._kq_resting, resting
        # Whatever a signal ends here: what rests is known of all that is paused, and so goes on the next time.
        self._kq_resting = before | resting
        if begun := resting - before:
            self._kq_pause_source([TopicPartition(*key) for key in begun], is_paused=True)
        if ended := before - resting - self._kq_paused - {key_of(part) for part in self._kq_paused_by_us}:
            self._kq_pause_source([TopicPartition(*key) for key in ended], is_paused=False)
        self._kq_resting = resting

    def _kq_rest_no_more(self, partition: Partition) -> None:
        """It is begun elsewhere, and librdkafka would forget that with a pause."""
        if partition in self._kq_turns | self._kq_resting:
            self._kq_rest(self._kq_resting - {partition})

    def _kq_seek_in_source(self, partition: TopicPartition) -> None:
        if self._kq_fetcher is None:
            super().seek(partition)
        else:
            self._kq_fetcher.seek(partition)
            self._kq_asked.discard(key_of(partition))

    def get_watermark_offsets(self, partition: TopicPartition, *args: Any, **kwargs: Any) -> tuple[int, int]:
        """As confluent_kafka's: first offset and the one after the last; `cached=True` says what fetches have told."""
        named = {**dict(zip(("timeout", "cached"), args, strict=False)), **kwargs}
        fetcher: Any = self._kq_fetcher  # whose time may be up, which confluent_kafka's types do not say
        if fetcher is not None and named.get("cached"):
            marks: tuple[int, int] | None = fetcher.get_watermark_offsets(partition, *args, **kwargs)
            if marks is not None and marks[1] >= 0:
                return marks
        # The other client has heard of no end yet: what was told before it fetched still stands, as it would with one.
        return super().get_watermark_offsets(partition, *args, **kwargs)

    def _kq_pause_source(self, partitions: list[TopicPartition], *, is_paused: bool) -> None:
        source: Any = super() if self._kq_fetcher is None else self._kq_fetcher
        (source.pause if is_paused else source.resume)(partitions)

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """As confluent_kafka's; whoever fetches logs in with these, too."""
        super().set_sasl_credentials(username, password)
        self._kq_fetcher_conf = {**self._kq_fetcher_conf, "sasl.username": username, "sasl.password": password}
        if self._kq_fetcher is not None:
            self._kq_fetcher.set_sasl_credentials(username, password)

    # Following the group -------------------------------------------------------------------------------------------

    def _kq_begin_at(self, partitions: list[TopicPartition]) -> None:
        """The application wants these read from there."""
        self._kq_times_assigned += 1
        self._kq_anew.update(map(key_of, partitions))
        self._kq_note_starts(partitions)

    def _kq_note_starts(self, partitions: list[TopicPartition]) -> None:
        self._kq_begun_s = unix_ms() / 1000  # what statistics have told of these is of before
        for part in partitions:
            if part.offset in {OFFSET_INVALID, OFFSET_STORED}:
                self._kq_starts.pop(key_of(part), None)
            else:
                self._kq_starts[key_of(part)] = part.offset

    def _kq_first_offset(self, part: TopicPartition) -> int:
        """Where a partition of the assignment was begun; librdkafka's signs for beginning and end are possible."""
        start = self._kq_starts.get(key_of(part))
        if start is not None:
            return start
        committed = super().committed([part], COMMITTED_S)[0].offset
        if committed >= 0:
            return committed
        return OFFSET_BEGINNING if self._kq_reset in EARLIEST else OFFSET_END

    def _kq_assign_anew(self, partitions: list[TopicPartition]) -> None:
        """The application reads these and no others, from where it says, whatever was read before."""
        if self._kq_fetcher is None:
            return
        super().pause(partitions)
        self._kq_fetcher.assign(self._kq_at_starts(map(key_of, partitions)))

    def _kq_follow_assignment(self) -> None:
        """Have the other client fetch what is assigned to this one, and nothing else."""
        fetcher = self._kq_fetcher
        if fetcher is None:
            return
        self._kq_may_differ = False  # before it is read: a handler may change it meanwhile, and says so
        assigned = set(map(key_of, super().assignment()))
        fetched = set(map(key_of, fetcher.assignment()))
        if fetched - assigned:
            fetcher.incremental_unassign([TopicPartition(*key) for key in fetched - assigned])
        if assigned - fetched:
            super().pause([TopicPartition(*key) for key in assigned - fetched])
            fetcher.incremental_assign(self._kq_at_starts(assigned - fetched))

    def _kq_at_starts(self, keys: Iterable[Partition]) -> list[TopicPartition]:
        found = [TopicPartition(*key, self._kq_starts.get(key, OFFSET_INVALID)) for key in keys]
        self._kq_note_asked(found)
        return found

    def _kq_note_asked(self, begun: list[TopicPartition]) -> None:
        self._kq_asked -= {key_of(part) for part in begun}
        self._kq_asked |= {key_of(part) for part in begun if part.offset == OFFSET_INVALID}

    def _kq_told(self, events: list[Message]) -> list[Message]:
        """What the other client gives, but for its not having been told by the group where partitions begin.

        It does not heartbeat, so it learns that its group has another coordinator by asking the one of before.
        """
        there = [event for event in events if not was_not_told(event)]
        self._kq_was_not_told = self._kq_was_not_told or len(there) < len(events)
        return there

    def _kq_ask_again(self, told: Mapping[str, Any]) -> None:
        """Have the other client ask once more for partitions of which it was not told where they begin.

        Called with all that its statistics have told: to ask a coordinator that is no longer one again and again would
        do no good.
        """
        fetcher = self._kq_fetcher
        if fetcher is None or not self._kq_was_not_told:
            return
        is_of_now = told.get("time", 0) > self._kq_begun_s
        if self._kq_reset in LATEST and not is_of_now:
            return  # one that has begun at its end must not begin at a later one
        begun = {key for key in self._kq_asked if is_of_now and _next_fetch(told, key)}
        there = fetcher.position(fetcher.assignment())
        self._kq_asked = {key_of(part) for part in there if part.offset < 0} & self._kq_asked - begun
        if self._kq_asked:
            fetcher.incremental_unassign([TopicPartition(*key) for key in self._kq_asked])
            self._kq_follow_assignment()
            fetcher.pause([TopicPartition(*key) for key in self._kq_asked & self._kq_paused])
        self._kq_was_not_told = False

    def _kq_release(self, partitions: list[TopicPartition]) -> None:
        """These go to others: fetch them no longer."""
        self._kq_may_differ = True
        gone = set(map(key_of, partitions))
        if self._kq_fetcher is not None:
            mine = [part for part in self._kq_fetcher.assignment() if key_of(part) in gone]
            if mine:
                self._kq_fetcher.incremental_unassign(mine)

    def _kq_assign_paused(self, partitions: list[TopicPartition]) -> None:
        """Take what the group assigns, without fetching any of it."""
        self._kq_may_differ = True
        (super().incremental_assign if self._kq_is_cooperative else super().assign)(partitions)
        super().pause(partitions)

    # Changing sizes ------------------------------------------------------------------------------------------------

    def _kq_made_to_fetch(self, sizes: FetchSizes) -> CConsumer | None:
        """A client with these sizes; None where none can be made: what it reads may have gone since this one was."""
        sizes_of_now = FetchSizes(1, 1).conf
        conf = {key: value for key, value in self._kq_fetcher_conf.items() if key not in sizes_of_now}
        conf.update(
            {
                **sizes.conf,
                **sizes.imposed,
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "enable.metrics.push": False,
                "statistics.interval.ms": told_ms(conf, STATISTICS_MS),
                "stats_cb": self._kq_fetcher_events,
                "throttle_cb": self._kq_fetcher_events,
            }
        )
        try:
            fetcher = made_apart(conf)
        except KafkaException as error:
            if not self._kq_said_not_made:
                logger.warning(
                    "Client %r cannot fetch as its quota wants it, and goes on as before: the other client that would "
                    "do so cannot be made: %s",
                    conf.get("client.id", DEFAULT_CLIENT_ID),
                    error,
                )
            self._kq_said_not_made = True
            return None
        self._kq_said_not_made = False
        return fetcher

    def _kq_fetch_by(self, fetcher: CConsumer, expected: Mapping[Partition, int], told: Mapping[str, Any]) -> None:
        """Have this client fetch from now on.

        Args:
            fetcher: has nothing assigned yet.
            expected: the offsets to go on from, where any are known.
            told: the last statistics of the client that fetches now.
        """
        assigned = super().assignment()
        unread = self._kq_unread(assigned, expected, told)
        starts = {**unread, **expected}
        for part in assigned:
            part.offset = starts.get(key_of(part), OFFSET_INVALID)
        if assigned:
            fetcher.assign(assigned)
        self._kq_note_asked(assigned)
        if self._kq_paused:
            fetcher.pause([TopicPartition(*key) for key in self._kq_paused])
        # A signal may end any line: the new one is in its place when it knows where to begin, and not before.
        before, self._kq_fetcher = self._kq_fetcher, fetcher
        self._kq_resting = self._kq_turns = frozenset()
        self._kq_starts.update(unread)
        if before is not None:
            before.close()
        elif assigned:
            super().pause(assigned)

    def _kq_unread(
        self, assigned: list[TopicPartition], expected: Mapping[Partition, int], told: Mapping[str, Any]
    ) -> dict[Partition, int]:
        """Where partitions are to be begun of which nothing has been received yet."""
        starts = dict(self._kq_starts)
        # Statistics made before partitions were begun would tell of what was read of them before that.
        if told.get("time", 0) > self._kq_begun_s:
            for part in assigned:
                key = key_of(part)
                if key not in expected and starts.get(key, OFFSET_END) == OFFSET_END:
                    starts.update(_next_fetch(told, key))
        unread = [part for part in assigned if key_of(part) not in expected]
        at_end = [part for part in unread if starts.get(key_of(part)) == OFFSET_END]
        rest = [part for part in unread if key_of(part) not in starts]
        if rest and self._kq_reset in LATEST:
            try:
                at_end += [part for part in super().committed(rest, COMMITTED_S) if part.offset < 0]
            except KafkaException:
                logger.debug("What is committed could not be asked for")
        source: Any = super() if self._kq_fetcher is None else self._kq_fetcher
        for part in at_end:
            # It was begun at its end, of which another client would see another one. What fetches have told of it
            # since may be ahead of what they have brought, and is second best: as long as no statistics tell more.
            marks = source.get_watermark_offsets(part, cached=True)
            if marks is not None and marks[1] >= 0:
                starts[key_of(part)] = marks[1]
        return starts


def was_not_told(event: Message) -> bool:
    """Whether an event says that it could not be asked just now where partitions begin."""
    error = event.error()
    return error is not None and error.code() in _PASSES and error.str().startswith(_NOT_TOLD)


def _next_fetch(told: Mapping[str, Any], key: Partition) -> dict[Partition, int]:
    """From where a partition is fetched next, by statistics; empty where they do not tell."""
    topic, number = key
    partition = told.get("topics", {}).get(topic, {}).get("partitions", {}).get(str(number), {})
    offset = partition.get("next_offset", OFFSET_INVALID)
    return {key: offset} if offset >= 0 and partition.get("fetch_state") == "active" else {}
