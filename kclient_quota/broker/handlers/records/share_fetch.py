"""Share groups (KIP-932): records are acquired, delivered, acknowledged.

ShareFetch (78) v1-2. KIP-932, KIP-1206 (record_limit), KIP-1222 (renewal).

Behaviour: follows `SharePartitionManager` (round-robin) and `DelayedShareFetch`. Share sessions end with their
connection, and are one broker's; what a member then holds is for others. A fetch acquires before any quota has its say.
Under the manner `kafka` an answer over the quota is sent empty and what it held stays acquired until its lock runs out,
as in Kafka 4.3.1: five of those and the records are archived unseen. Under the manner `released` it is given back.
Who is not the leader any more says who is.
Versions: ShareFetch 1 as of Kafka 4.1; 2 acquire mode (KIP-1206), renewal (KIP-1222).
Under `share.isolation.level=read_committed` a fetch ends at the last stable offset, and what was aborted is archived.
What groups have of partitions can be read in `__share_group_state` (`shares.share_state_topic`).
Gaps: what is in that topic is told, not read back: it is kept in the data directory.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from uuid import UUID

from kclient_quota.broker.cluster_state import Partition
from kclient_quota.broker.groups.in_steps import Steps, parts
from kclient_quota.broker.handlers.records.share_acknowledge import (
    Batches,
    Found,
    Said,
    acknowledged,
    find,
    leaders_of,
)
from kclient_quota.broker.log.transaction_index import AbortedBatches
from kclient_quota.broker.request.context import AT_ONCE, Context
from kclient_quota.broker.request.long.letting_go import emptied, let_go
from kclient_quota.broker.request.promise import Promise
from kclient_quota.broker.request.registry import handler
from kclient_quota.broker.shares.share_partition import SharePartition, Wanted
from kclient_quota.broker.shares.share_records import Acquired, left_of
from kclient_quota.broker.shares.share_service import ShareService
from kclient_quota.broker.shares.share_sessions import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    RELEASED_AT_ONCE,
    Place,
    ShareSession,
)
from kclient_quota.wire.batches import BatchHeader, iterate_batches
from kclient_quota.wire.error_codes import ErrorCode
from kclient_quota.wire.messages import ShareFetchRequest, ShareFetchResponse

_RECORD_LIMIT = 1
_LOOK_MS = 100
"""How soon a fetch of very many partitions looks again that has had to begin waiting in turns."""
_NOTHING = memoryview(b"")
_READ_COMMITTED = "read_committed"
FetchRow = ShareFetchResponse.PartitionData
_Ready = tuple[Found, Partition, SharePartition]


@handler(ShareFetchRequest, min_version=1, max_version=2)
async def share_fetch(context: Context, request: ShareFetchRequest) -> ShareFetchResponse:
    """Take acknowledgements, then acquire and return records, or wait for some."""
    service = context.services.get(ShareService)
    group_id, member_id = request.group_id or "", request.member_id or ""
    session = _session(context, request)
    if not isinstance(session, ShareSession):
        return ShareFetchResponse(error_code=session)
    lock_ms = service.rules(group_id).lock_ms
    said = await acknowledged(context, group_id, member_id, await _said(context, request), request.is_renew_ack)
    acked = await _rows(context, said, {})
    without_records = ShareFetchResponse(acquisition_lock_timeout_ms=lock_ms, responses=acked)
    context.emptied = lambda: without_records
    if request.share_session_epoch == FINAL_EPOCH:
        service.sessions.close(context.broker.id, group_id, member_id)
        # not the same list: what is written of a long answer is let go of, and it may be sent emptied after that
        return ShareFetchResponse(responses=list(acked))
    await _want(context, request, session)
    fetch = _Fetch(context, service, request, session)
    rows = await fetch.run()
    if context.cluster.manner.releases_emptied:
        context.emptied = lambda: fetch.given_back(without_records)
    response = ShareFetchResponse(acquisition_lock_timeout_ms=lock_ms, responses=await _rows(context, said, rows))
    response.node_endpoints = [
        ShareFetchResponse.NodeEndpoint(node_id=node_id, host=host, port=port)
        for node_id, host, port in await leaders_of(context, fetch.found)
    ]
    await context.by_and_by(let_go(fetch.found))
    return response


async def _want(context: Context, request: ShareFetchRequest, session: ShareSession) -> None:
    """Let a session read what a request adds, and no longer what it takes away."""
    for topic in request.topics:
        for some in parts(topic.partitions, AT_ONCE):
            await context.turn_after(len(some))
            session.wanted.update(dict.fromkeys((topic.topic_id, part.partition_index) for part in some))
    for forgotten in request.forgotten_topics_data:
        for indexes in parts(forgotten.partitions, AT_ONCE):
            await context.turn_after(len(indexes))
            for index in indexes:
                session.wanted.pop((forgotten.topic_id, index), None)


async def _said(context: Context, request: ShareFetchRequest) -> list[tuple[UUID, int, Batches]]:
    """What a request says of records, by partition."""
    said: list[tuple[UUID, int, Batches]] = []
    for topic in request.topics:
        for some in parts(topic.partitions, AT_ONCE):
            await context.turn_after(len(some))
            said += [
                (topic.topic_id, part.partition_index, part.acknowledgement_batches)
                for part in some
                if part.acknowledgement_batches
            ]
    return said


def _session(context: Context, request: ShareFetchRequest) -> ShareSession | ErrorCode:
    service = context.services.get(ShareService)
    group_id, member_id, epoch = request.group_id, request.member_id, request.share_session_epoch
    if not group_id or not member_id:
        return ErrorCode.INVALID_REQUEST
    if epoch != INITIAL_EPOCH:
        return service.sessions.resume(context.broker.id, group_id, member_id, epoch)
    if any(part.acknowledgement_batches for topic in request.topics for part in topic.partitions):
        return ErrorCode.INVALID_REQUEST
    return service.sessions.open(context.broker.id, group_id, member_id, context.connection)


async def _rows(
    context: Context, said: Said, rows: "dict[tuple[UUID, int], FetchRow]"
) -> list[ShareFetchResponse.ShareFetchableTopicResponse]:
    """Rows of what was fetched and of what was acknowledged, by topic."""
    for answers in parts(said.items(), AT_ONCE):
        await context.turn_after(len(answers))
        for (topic_id, index), (error, message) in answers:
            row = rows.setdefault((topic_id, index), FetchRow(partition_index=index, records=_NOTHING))
            row.acknowledge_error_code, row.acknowledge_error_message = error, message
    topics: dict[UUID, ShareFetchResponse.ShareFetchableTopicResponse] = {}
    for some in parts(rows.items(), AT_ONCE):
        await context.turn_after(len(some))
        for (topic_id, _), row in some:
            topic = topics.get(topic_id)
            if topic is None:
                topic = topics[topic_id] = ShareFetchResponse.ShareFetchableTopicResponse(topic_id=topic_id)
            topic.partitions.append(row)
    await context.by_and_by(emptied(rows))
    return list(topics.values())


# -- fetching


class _Fetch:
    """One fetch over all partitions of a session.

    Attributes:
        found: the partitions.
    """

    def __init__(
        self, context: Context, service: ShareService, request: ShareFetchRequest, session: ShareSession
    ) -> None:
        self._context = context
        self._service = service
        self._request = request
        self._group_id, self._member_id = request.group_id or "", request.member_id or ""
        self._rules = service.rules(self._group_id)
        committed = service.setting(self._group_id, "share.isolation.level", "read_uncommitted") == _READ_COMMITTED
        self._is_committed = committed
        self._all_rows = request.share_session_epoch == INITIAL_EPOCH
        self._acquired: list[tuple[Place, SharePartition, list[Acquired]]] = []
        # another partition comes first each time: a small fetch may bring nothing of the others
        wanted = list(session.wanted)
        first = request.share_session_epoch % len(wanted) if wanted else 0
        self._session, self._wanted = session, wanted[first:] + wanted[:first]
        self.found: list[Found] = []

    async def run(self) -> dict[tuple[UUID, int], FetchRow]:
        """Read now, or when there is enough; rows of the partitions of which there is something to say.

        Raises:
            OSError: what was acknowledged before the waiting could not be kept, and has been undone.
        """
        request, scheduler, cluster = self._request, self._context.scheduler, self._context.cluster
        await self._find_all()
        end_ms = self._context.now_ms + request.max_wait_ms
        if request.is_renew_ack or request.max_records <= 0:
            return {}
        while True:
            now_ms = scheduler.now_ms()
            is_last = now_ms >= end_ms or any(one.error for one in self.found) or not self.found
            rows = await self._read(now_ms, is_last=is_last)
            if is_last or rows is not None or not self._is_open():
                return rows or {}
            if cluster.changes:
                # who saves next would undo it when the disk is full, and this would not hear of that
                cluster.save()
            await self._more(end_ms)
            if not self._is_open():
                return {}
            await self._find_all()

    def _is_open(self) -> bool:
        """Whether the session is still the member's: else nobody would give back what is acquired now."""
        return self._service.sessions.has(self._context.broker.id, self._group_id, self._member_id, self._session)

    def _is_kept(self, one: Found, kept: SharePartition) -> bool:
        """Whether it would be known who has records: not if the group has begun anew meanwhile, or another leads."""
        place = self._group_id, one.topic_id, one.number
        is_led = one.partition is not None and one.partition.leader_epoch == kept.leader_epoch
        return is_led and self._service.partitions.get(place) is kept

    async def _find_all(self) -> None:
        await self._context.by_and_by(let_go(self.found))
        self.found += await self._context.in_turns(self._wanted, self._find)

    def _find(self, wanted: tuple[UUID, int]) -> Found:
        return find(self._context, *wanted)

    def given_back(self, response: ShareFetchResponse) -> ShareFetchResponse:
        """`response`, and what was acquired is anybody's again, as if it had never been."""
        self._service.sessions.afterwards(self._taken_back())
        return response

    def _taken_back(self) -> Steps[None]:
        for some in parts(self._acquired, RELEASED_AT_ONCE):
            for place, kept, acquired in some:
                kept.take_back(self._member_id, acquired)
                self._service.changed(place)
            if len(some) == RELEASED_AT_ONCE:
                yield

    async def _read(self, now_ms: int, *, is_last: bool) -> dict[tuple[UUID, int], FetchRow] | None:
        """Rows; None where it is worth waiting for more."""
        rows, ready = await self._ready(now_ms)
        read = await self._read_from(ready)
        await self._context.by_and_by(let_go(ready))
        size = sum(len(records) for _, _, records in read)
        if not is_last and (not size or size < self._request.min_bytes):
            return None
        left = self._request.max_records
        for one, kept, records in read:
            await self._context.turn_after(kept.weight)
            if left <= 0 or not self._is_open():
                break
            if not self._is_kept(one, kept):
                continue
            row = self._acquire(one, kept, records, left)
            left -= sum(part.last_offset - part.first_offset + 1 for part in row.acquired_records)
            if row.acquired_records:
                rows[one.topic_id, one.number] = row
        return rows

    async def _ready(self, now_ms: int) -> tuple[dict[tuple[UUID, int], FetchRow], list[_Ready]]:
        """Rows of which there is something to say without any records, and the partitions that may have some."""
        rows: dict[tuple[UUID, int], FetchRow] = {}
        ready: list[_Ready] = []
        for one in self.found:
            await self._context.turn_after()
            if not self._is_open():
                # its group may be gone, which would begin to read again by this
                break
            if one.error or one.topic is None or one.partition is None:
                rows[one.topic_id, one.number] = _refused(one)
                continue
            kept = self._service.partition(self._group_id, one.topic, one.partition, now_ms)
            await self._context.turn_after(kept.weight - 1)
            if self._all_rows:
                rows[one.topic_id, one.number] = FetchRow(partition_index=one.number, records=_NOTHING)
            if kept.has_room(self._rules):
                ready.append((one, one.partition, kept))
        return rows, ready

    async def _read_from(self, ready: list[_Ready]) -> list[tuple[Found, SharePartition, memoryview]]:
        """What there is to be read, of each partition its share of `max_bytes`, and of the first with any a batch."""
        share = self._request.max_bytes // max(1, len(ready))
        read: list[tuple[Found, SharePartition, memoryview]] = []
        for one, partition, kept in ready:
            await self._context.turn_after(kept.weight)
            records = self._records(partition, kept, share, min_one_batch=not read)
            if records:
                read.append((one, kept, records))
        return read

    def _records(self, partition: Partition, kept: SharePartition, most: int, *, min_one_batch: bool) -> memoryview:
        log, begin = partition.log, kept.next_offset()
        log.retain(self._context.now_ms)
        end = log.last_stable_offset if self._is_committed else log.high_watermark
        if not log.start_offset <= begin < end:
            return _NOTHING
        return log.read(begin, most, min_one_batch=min_one_batch, end_offset=end)

    def _acquire(self, one: Found, kept: SharePartition, records: memoryview, most: int) -> FetchRow:
        batches = _as_far_as(iterate_batches(records, partial=True), len(kept) + most)
        request = self._request
        wanted = Wanted(most, request.batch_size, request.share_acquire_mode == _RECORD_LIMIT)
        fetched = [(header.base_offset, header.last_offset) for _, header in batches]
        # a lock begins now, not when the first partition was looked at
        now_ms = self._context.scheduler.now_ms()
        acquired = kept.acquire(self._member_id, fetched, wanted, self._rules, now_ms)
        if self._is_committed and acquired and one.partition is not None:
            acquired = self._without_aborted(one.partition, kept, [header for _, header in batches], acquired)
        row = FetchRow(partition_index=one.number, records=_NOTHING)
        if not acquired:
            return row
        place = self._group_id, one.topic_id, one.number
        self._acquired.append((place, kept, acquired))
        self._session.held[place] = None
        self._service.locked(place)
        held = [(at, header) for at, header in batches if header.last_offset >= acquired[0].first]
        held = [(at, header) for at, header in held if header.base_offset <= acquired[-1].last]
        row.records = records[held[0][0] : held[-1][0] + held[-1][1].size]
        row.acquired_records = [
            ShareFetchResponse.AcquiredRecords(
                first_offset=part.first, last_offset=part.last, delivery_count=part.delivery
            )
            for part in acquired
        ]
        return row

    def _without_aborted(
        self, partition: Partition, kept: SharePartition, headers: Sequence[BatchHeader], acquired: list[Acquired]
    ) -> list[Acquired]:
        """What of it was not aborted; the rest is archived."""
        first, last = acquired[0].first, acquired[-1].last
        aborted = AbortedBatches(partition.log.transactions.aborted_between(headers[0].base_offset, last + 1))
        gone = aborted.stretches(headers, first, last)
        if gone:
            kept.archive(self._member_id, gone)
        return left_of(acquired, gone)

    async def _more(self, end_ms: int) -> None:
        """Return when there may be more, or at `end_ms`."""
        promise: Promise[None] = Promise()

        def wake() -> None:
            promise.resolve(None)

        ends: list[Callable[[], object]] = []
        scheduler, turns = self._context.scheduler, self._context.turns
        timers = [scheduler.call_at(end_ms, wake)]
        try:
            for one in self.found:
                if one.partition is None:
                    continue
                await self._context.turn_after()
                one.partition.log.watch(wake)
                ends.append(partial(one.partition.log.unwatch, wake))
                ends.append(self._service.watch((self._group_id, one.topic_id, one.number), wake))
            if turns != self._context.turns:
                # what has come to a partition before it was watched woke nobody
                timers.append(scheduler.call_at(min(end_ms, scheduler.now_ms() + _LOOK_MS), wake))
            await promise
            while ends:
                ends.pop()()
                await self._context.turn_after()
        finally:
            for timer in timers:
                timer.cancel()
            for end in ends:
                end()


def _as_far_as(batches: Iterable[tuple[int, BatchHeader]], most: int) -> list[tuple[int, BatchHeader]]:
    """Those that hold the first `most` records: of millions no more are acquired."""
    found = []
    for at, header in batches:
        found.append((at, header))
        most -= header.last_offset - header.base_offset + 1
        if most <= 0:
            break
    return found


def _refused(one: Found) -> FetchRow:
    row = FetchRow(partition_index=one.number, error_code=one.error, records=_NOTHING)
    if one.error is ErrorCode.NOT_LEADER_OR_FOLLOWER and one.partition is not None:
        row.current_leader = ShareFetchResponse.LeaderIdAndEpoch(
            leader_id=one.partition.leader, leader_epoch=one.partition.leader_epoch
        )
    return row
