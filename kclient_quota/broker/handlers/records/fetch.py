"""Reading batches, waiting for them if there are too few.

Fetch (1) v4-18. KIP-74, KIP-98, KIP-227, KIP-320, KIP-516, KIP-951.

Behaviour: follows `ReplicaManager.fetchMessages`: partitions are read in the order asked for, the first batch found is
returned whole, everything later is cut at the limits; with less than `min_bytes` the answer waits for `max_wait_ms` or
for an append. Offsets whose batch is damaged on the disk are answered with CORRUPT_MESSAGE. Limits set by quotas have
been put into the request before it comes here. Sessions (KIP-227) are one broker's and end with it; an answer that a
quota empties leaves its session as if nothing had been told. Who is not the leader any more says who is (KIP-951).
Versions: 4 isolation level; 5 log start offset; 6 KAFKA_STORAGE_ERROR; 7 sessions (KIP-227); 8 answered before it is
throttled (KIP-219); 9 leader epochs (KIP-320); 10 zstd; 11 rack (KIP-392); 12 flexible; 13 topic ids (KIP-516);
14 tiered storage; 15 replica state; 16 leaders' addresses (KIP-951); 17 directory ids; 18 high watermark (KIP-1166).
Gaps: no rack awareness (KIP-392), no divergence detection: logs never diverge here.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from kclient_quota.broker.cluster_state import Partition, Topic
from kclient_quota.broker.request.context import AT_ONCE, Context
from kclient_quota.broker.request.fetch_sessions import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    NO_SESSION,
    FetchSession,
    FetchSessions,
)
from kclient_quota.broker.request.promise import Promise
from kclient_quota.broker.request.registry import handler
from kclient_quota.wire.error_codes import ErrorCode
from kclient_quota.wire.messages import FetchRequest, FetchResponse

if TYPE_CHECKING:
    from kclient_quota.broker.log.partition_log import PartitionLog

_TOPIC_IDS_SINCE = 13
_LEADERS_SINCE = 16
_SESSIONS_SINCE = 7
_LED_ELSEWHERE = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)
_READ_COMMITTED = 1
_NOTHING = memoryview(b"")

PartitionData = FetchResponse.PartitionData


@dataclass(slots=True)
class _Wanted:
    """One partition of the request, resolved."""

    request: FetchRequest.FetchPartition
    partition: Partition | None
    error: ErrorCode


_All = list[tuple[FetchRequest.FetchTopic, list[_Wanted]]]


class _Read(NamedTuple):
    """What was read.

    Attributes:
        response: as it would be now.
        size: bytes of records in it.
        partitions: how many it tells of.
        is_refused: whether one of them has an error.
    """

    response: FetchResponse
    size: int
    partitions: int
    is_refused: bool


@handler(FetchRequest, min_version=4, max_version=18)
async def fetch(context: Context, request: FetchRequest) -> FetchResponse:
    """Read, or wait and read again."""
    sessions = context.services.get(FetchSessions)
    if request.session_epoch not in {INITIAL_EPOCH, FINAL_EPOCH}:
        session = await sessions.resume(context.broker.id, request, context.turn_after)
        if not isinstance(session, FetchSession):
            return FetchResponse(error_code=session)
        session_id = session.id if session.wanted else NO_SESSION
        context.emptied = lambda: FetchResponse(session_id=session_id)
        topics = session.topics()
        read = await _read_or_wait(context, request, topics)
        context.emptied = lambda: session.untold(session_id)
        response = await session.news(read.response, session_id, context.turn_after)
        return await _leaders(context, response) if read.is_refused else response
    if request.session_id != NO_SESSION:
        sessions.close(context.broker.id, request.session_id)
    read = await _read_or_wait(context, request, request.topics)
    response = read.response
    if request.session_epoch == INITIAL_EPOCH and context.api_version >= _SESSIONS_SINCE and request.topics:
        opened = await sessions.open(context.broker.id, request, context.turn_after)
        if opened is not None:
            context.emptied = lambda: sessions.give_up(context.broker.id, opened)
            response = await opened.news(response, opened.id, context.turn_after)
    return await _leaders(context, response) if read.is_refused else response


async def _read_or_wait(context: Context, request: FetchRequest, topics: list[FetchRequest.FetchTopic]) -> _Read:
    wanted = [(topic, await _resolve(context, topic)) for topic in topics]
    read = await _read(context, request, wanted)
    if request.max_wait_ms > 0 and read.size < request.min_bytes and wanted and not read.is_refused:
        await _more(context, request, wanted)
        await context.turn_for(read.partitions)
        if read.partitions > AT_ONCE:
            await _let_go(context, (topic.partitions for topic in read.response.responses))
            await _let_go(context, (entries for _, entries in wanted))
        for index, topic in enumerate(topics):
            wanted[index] = topic, await _resolve(context, topic)
        read = await _read(context, request, wanted)
    if read.partitions > AT_ONCE:
        await _let_go(context, (entries for _, entries in wanted))
    return read


async def _let_go(context: Context, lists: Iterable[list[Any]]) -> None:
    """Empty lists that nobody needs any more: to free very much of it at once takes a while."""
    for rows in lists:
        while rows:
            await context.turn_after(min(len(rows), AT_ONCE))
            del rows[-AT_ONCE:]


async def _leaders(context: Context, response: FetchResponse) -> FetchResponse:
    """Name the new leaders of partitions that are not led here any more, and where they are."""
    if context.api_version < _LEADERS_SINCE:
        return response
    leaders = {}
    for topic in response.responses:
        known = context.cluster.topics_by_id.get(topic.topic_id)
        await context.turn_after(len(topic.partitions))
        for data in topic.partitions:
            if known is None or data.error_code not in _LED_ELSEWHERE:
                continue
            partition = known.partitions[data.partition_index]
            data.current_leader = FetchResponse.LeaderIdAndEpoch(
                leader_id=partition.leader, leader_epoch=partition.leader_epoch
            )
            leaders[partition.leader] = context.cluster.brokers.get(partition.leader)
    response.node_endpoints = [
        FetchResponse.NodeEndpoint(
            node_id=broker_id, host=broker.host, port=broker.ports.get(context.connection.listener, -1)
        )
        for broker_id, broker in leaders.items()
        if broker is not None
    ]
    return response


# -- finding partitions


async def _resolve(context: Context, asked: FetchRequest.FetchTopic) -> list[_Wanted]:
    if context.api_version >= _TOPIC_IDS_SINCE:
        topic, unknown = context.cluster.topics_by_id.get(asked.topic_id), ErrorCode.UNKNOWN_TOPIC_ID
    else:
        topic, unknown = context.cluster.topics.get(asked.topic), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return await context.in_turns(asked.partitions, partial(_resolve_partition, context, topic, unknown))


def _resolve_partition(
    context: Context, topic: Topic | None, unknown: ErrorCode, asked: FetchRequest.FetchPartition
) -> _Wanted:
    if topic is None:
        return _Wanted(asked, None, unknown)
    if not 0 <= asked.partition < len(topic.partitions):
        return _Wanted(asked, None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    partition = topic.partitions[asked.partition]
    return _Wanted(asked, partition, _refusal(context, partition, asked))


def _refusal(context: Context, partition: Partition, asked: FetchRequest.FetchPartition) -> ErrorCode:
    if partition.leader != context.broker.id:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    epoch = asked.current_leader_epoch
    if 0 <= epoch < partition.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if epoch > partition.leader_epoch:
        return ErrorCode.UNKNOWN_LEADER_EPOCH
    partition.log.retain(context.now_ms)
    if not partition.log.start_offset <= asked.fetch_offset <= partition.log.end_offset:
        return ErrorCode.OFFSET_OUT_OF_RANGE
    if partition.log.damaged and partition.log.damage_at(asked.fetch_offset) is not None:
        return ErrorCode.CORRUPT_MESSAGE
    return ErrorCode.NONE


# -- reading


async def _read(context: Context, request: FetchRequest, wanted: _All) -> _Read:
    left = request.max_bytes
    total = count = 0
    is_refused = False
    topics = []
    context.seen_to = 0
    for asked, entries in wanted:
        partitions = []
        for entry in entries:
            context.seen_to += 1
            if context.seen_to > AT_ONCE:
                await context.turn_after()
            data = _read_partition(entry, left, request.isolation_level, min_one_batch=total == 0)
            size = len(data.records or b"")
            left = max(0, left - size)
            total += size
            partitions.append(data)
            if data.error_code:
                is_refused = True
        count += len(entries)
        topics.append(
            FetchResponse.FetchableTopicResponse(topic=asked.topic, topic_id=asked.topic_id, partitions=partitions)
        )
    return _Read(FetchResponse(responses=topics), total, count, is_refused)


def _read_partition(entry: _Wanted, left: int, isolation_level: int, *, min_one_batch: bool) -> PartitionData:
    asked, partition = entry.request, entry.partition
    if entry.error or partition is None:
        return _refused(entry)
    log = partition.log
    limit = min(asked.partition_max_bytes, left)
    stable = log.last_stable_offset
    committed = isolation_level == _READ_COMMITTED
    end_offset = stable if committed else log.high_watermark
    records = log.read(asked.fetch_offset, limit, min_one_batch=min_one_batch, end_offset=end_offset)
    data = PartitionData(
        partition_index=asked.partition,
        error_code=0,
        high_watermark=log.high_watermark,
        last_stable_offset=stable,
        log_start_offset=log.start_offset,
        aborted_transactions=None,
        records=records,
    )
    if committed:
        data.aborted_transactions = [
            FetchResponse.AbortedTransaction(producer_id=aborted.producer_id, first_offset=aborted.first_offset)
            for aborted in log.aborted_in(asked.fetch_offset, len(records))
        ]
    return data


def _refused(entry: _Wanted) -> PartitionData:
    return PartitionData(
        partition_index=entry.request.partition,
        error_code=entry.error,
        high_watermark=-1,
        aborted_transactions=None,
        records=_NOTHING,
    )


# -- waiting


async def _more(context: Context, request: FetchRequest, wanted: _All) -> None:
    """Return when `min_bytes` can be read, a leader changes or `max_wait_ms` has passed."""
    promise: Promise[None] = Promise()
    committed = request.isolation_level == _READ_COMMITTED
    total = 0

    def looker(wait: _Wait) -> Callable[[], None]:
        def look() -> None:
            # only what has happened to this partition: a fetch may wait for hundreds
            nonlocal total
            before = wait.available
            if not wait.look():
                promise.resolve(None)
                return
            total += wait.available - before
            if total >= request.min_bytes:
                promise.resolve(None)

        return look

    timer = context.scheduler.call_at(context.now_ms + request.max_wait_ms, lambda: promise.resolve(None))
    watched: list[tuple[PartitionLog, Callable[[], None]]] = []
    turns, context.seen_to = context.turns, 0
    try:
        for entry in (entry for _, entries in wanted for entry in entries):
            if entry.partition is None:
                continue
            await context.turn_after()
            wait = _Wait(entry, entry.partition, committed)
            total += wait.available
            watched.append((wait.log, looker(wait)))
            wait.log.watch(watched[-1][1])
        if turns == context.turns or total < request.min_bytes:
            # else it has come while others had their turn
            await promise
        while watched:
            log, look = watched.pop()
            log.unwatch(look)
            await context.turn_after()
    finally:
        timer.cancel()
        for log, look in watched:
            log.unwatch(look)


class _Wait:
    """One partition of a fetch that waits.

    Attributes:
        log: whose appends matter.
        available: bytes that the fetch could have from it now.
    """

    __slots__ = ("_committed", "_leader_epoch", "_most", "_offset", "_partition", "available", "log")

    def __init__(self, entry: _Wanted, partition: Partition, committed: bool) -> None:
        self.log = partition.log
        self.available = 0
        self._partition = partition
        self._leader_epoch = partition.leader_epoch
        self._offset = entry.request.fetch_offset
        self._most = entry.request.partition_max_bytes
        self._committed = committed
        self.look()

    def look(self) -> bool:
        """Count anew; whether the partition is still led here and begins where it did."""
        log = self.log
        if self._partition.leader_epoch != self._leader_epoch or log.start_offset > self._offset:
            return False
        there = log.available_bytes(self._offset)
        end = log.last_stable_offset if self._committed else log.high_watermark
        if there and end < log.end_offset:
            there -= log.available_bytes(end)
        self.available = min(there, self._most)
        return True
