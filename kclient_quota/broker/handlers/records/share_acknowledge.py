"""Share groups (KIP-932): what members say of records that they have acquired.

ShareAcknowledge (79) v1-2. KIP-932, KIP-1222 (renewal).

Behaviour: follows `SharePartitionManager`: of each partition all of an acknowledgement is taken, or nothing. Who is not
the leader any more says who is.
Versions: 2 renewal.
Gaps: see `share_fetch`, which takes acknowledgements, too.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple
from uuid import UUID

from kclient_quota.broker.cluster_state import BrokerInfo, Partition, Topic
from kclient_quota.broker.groups.in_steps import parts
from kclient_quota.broker.request.context import AT_ONCE, ELEMENTS_AT_ONCE, Context
from kclient_quota.broker.request.long.letting_go import emptied, let_go
from kclient_quota.broker.request.registry import handler
from kclient_quota.broker.shares.share_partition import RENEW, Acknowledgement
from kclient_quota.broker.shares.share_service import ShareService
from kclient_quota.broker.shares.share_sessions import FINAL_EPOCH, INITIAL_EPOCH, ShareSession
from kclient_quota.wire.error_codes import ErrorCode
from kclient_quota.wire.messages import ShareAcknowledgeRequest, ShareAcknowledgeResponse, ShareFetchRequest

_ACKNOWLEDGED = 4
"""To take an acknowledgement costs as much as to look at some partitions."""
AcknowledgeRow = ShareAcknowledgeResponse.PartitionData
Said = dict[tuple[UUID, int], tuple[ErrorCode, str | None]]
Batches = Sequence[ShareFetchRequest.AcknowledgementBatch | ShareAcknowledgeRequest.AcknowledgementBatch]


class Found(NamedTuple):
    """One partition of a request, resolved."""

    topic_id: UUID
    number: int
    topic: Topic | None
    partition: Partition | None
    error: ErrorCode


@handler(ShareAcknowledgeRequest, min_version=1, max_version=2)
async def share_acknowledge(context: Context, request: ShareAcknowledgeRequest) -> ShareAcknowledgeResponse:
    """Take acknowledgements; with the final epoch the session ends."""
    service = context.services.get(ShareService)
    group_id, member_id = request.group_id or "", request.member_id or ""
    if request.share_session_epoch == INITIAL_EPOCH:
        return ShareAcknowledgeResponse(error_code=ErrorCode.INVALID_SHARE_SESSION_EPOCH)
    session = service.sessions.resume(context.broker.id, group_id, member_id, request.share_session_epoch)
    if not isinstance(session, ShareSession):
        return ShareAcknowledgeResponse(error_code=session)
    batches = (
        (topic.topic_id, part.partition_index, part.acknowledgement_batches)
        for topic in request.topics
        for part in topic.partitions
    )
    said = await acknowledged(context, group_id, member_id, batches, request.is_renew_ack)
    response = ShareAcknowledgeResponse(acquisition_lock_timeout_ms=service.rules(group_id).lock_ms)
    of_topic = ShareAcknowledgeResponse.ShareAcknowledgeTopicResponse
    topics: dict[UUID, ShareAcknowledgeResponse.ShareAcknowledgeTopicResponse] = {}
    found: list[Found] = []
    for some in parts(said.items(), AT_ONCE):
        await context.turn_after(len(some))
        for (topic_id, index), (error, message) in some:
            row = AcknowledgeRow(partition_index=index, error_code=error, error_message=message)
            topic = topics.get(topic_id)
            if topic is None:
                topic = topics[topic_id] = of_topic(topic_id=topic_id)
            topic.partitions.append(row)
            found.append(find(context, topic_id, index))
    response.responses = list(topics.values())
    response.node_endpoints = [
        ShareAcknowledgeResponse.NodeEndpoint(node_id=node_id, host=host, port=port)
        for node_id, host, port in await leaders_of(context, found)
    ]
    await context.by_and_by(let_go(found))
    await context.by_and_by(emptied(said))
    if request.share_session_epoch == FINAL_EPOCH:
        service.sessions.close(context.broker.id, group_id, member_id)
    return response


async def acknowledged(
    context: Context, group_id: str, member_id: str, said: Iterable[tuple[UUID, int, Batches]], may_renew: bool
) -> Said:
    """What came of each partition's acknowledgements."""
    service = context.services.get(ShareService)
    answers: Said = {}
    for topic_id, index, batches in said:
        asked = await _sound(context, batches, may_renew=may_renew)
        place = group_id, topic_id, index
        known = service.partitions.get(place)
        await context.turn_after(_ACKNOWLEDGED + (known.weight if known else 0))
        found = find(context, topic_id, index)
        if found.error or found.topic is None or found.partition is None or place not in service.partitions:
            answers[topic_id, index] = found.error or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None
            continue
        if asked is None:
            answers[topic_id, index] = ErrorCode.INVALID_REQUEST, None
            continue
        now_ms = context.scheduler.now_ms()
        kept = service.partition(group_id, found.topic, found.partition, now_ms)
        answers[topic_id, index] = kept.acknowledge(member_id, asked, service.rules(group_id), now_ms)
        service.changed(place)
    return answers


async def _sound(context: Context, batches: Batches, *, may_renew: bool) -> list[Acknowledgement] | None:
    """What is said, if batches rise, and say one thing of all their records or one of each."""
    allowed, before = frozenset(range((RENEW if may_renew else RENEW - 1) + 1)), -1
    said: list[Acknowledgement] = []
    for some in parts(batches, AT_ONCE):
        if said:
            await context.turn_after(len(some))
        for batch in some:
            first, last, types = batch.first_offset, batch.last_offset, batch.acknowledge_types
            if not before < first <= last or len(types) not in {1, last - first + 1}:
                return None
            for kinds in parts(types, ELEMENTS_AT_ONCE):
                if not allowed.issuperset(kinds):
                    return None
                if len(kinds) == ELEMENTS_AT_ONCE:
                    await context.turn_after(AT_ONCE // 10)
            said.append(Acknowledgement(first, last, types))
            before = last
    return said


def find(context: Context, topic_id: UUID, index: int) -> Found:
    """A partition as it is now."""
    topic = context.cluster.topics_by_id.get(topic_id)
    if topic is None:
        return Found(topic_id, index, None, None, ErrorCode.UNKNOWN_TOPIC_ID)
    if not 0 <= index < len(topic.partitions):
        return Found(topic_id, index, topic, None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    partition = topic.partitions[index]
    leads = partition.leader == context.broker.id
    return Found(topic_id, index, topic, partition, ErrorCode.NONE if leads else ErrorCode.NOT_LEADER_OR_FOLLOWER)


async def leaders_of(context: Context, found: Iterable[Found]) -> list[tuple[int, str, int]]:
    """Where those partitions are led that are not led here."""
    leaders: dict[int, BrokerInfo | None] = {}
    for some in parts(found, 4 * AT_ONCE):
        await context.turn_after(len(some) // 4)
        leaders |= {
            one.partition.leader: context.cluster.brokers.get(one.partition.leader)
            for one in some
            if one.error is ErrorCode.NOT_LEADER_OR_FOLLOWER and one.partition is not None
        }
    return [
        (node_id, broker.host, broker.ports.get(context.connection.listener, -1))
        for node_id, broker in leaders.items()
        if broker is not None
    ]
