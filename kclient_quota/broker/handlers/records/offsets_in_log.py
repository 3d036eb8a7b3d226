"""Places in a log.

ListOffsets (2) v1-10 · DeleteRecords (21) v0-2 · OffsetForLeaderEpoch (23) v2-4. KIP-79, KIP-107, KIP-320, KIP-734.

Behaviour: a timestamp is looked up exactly: the batch is found by its largest timestamp and its records are read, up to
20,000 or 16 MiB of them (beyond, the batch stands for its records).
Versions: ListOffsets 2 isolation level; 3 KIP-219; 4 leader epochs; 5 OFFSET_NOT_AVAILABLE; 6 flexible; 7 -3, the
largest timestamp (KIP-734); 8 -4, earliest local (KIP-405); 9 -5, latest tiered (KIP-1005); 10 time-out (KIP-1075).
DeleteRecords 1 KIP-219; 2 flexible. OffsetForLeaderEpoch 2 the client's leader epoch; 3 replica id; 4 flexible.
Gaps: one leader epoch per answer, since logs never diverge here: OffsetForLeaderEpoch answers the end of the log.
"""

from functools import partial

from kclient_quota.broker.cluster_state import Partition
from kclient_quota.broker.internal_topics import INTERNAL_TOPICS
from kclient_quota.broker.log.partition_log import PartitionLog
from kclient_quota.broker.request.context import Context
from kclient_quota.broker.request.registry import handler
from kclient_quota.errors import WireError
from kclient_quota.wire.batches import parse_header
from kclient_quota.wire.error_codes import ErrorCode
from kclient_quota.wire.messages import (
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)
from kclient_quota.wire.records import iterate_records

_LATEST = -1
_EARLIEST = -2
_MAX_TIMESTAMP = -3
_EARLIEST_LOCAL = -4
_LATEST_TIERED = -5
_SINCE_VERSION = {_LATEST: 1, _EARLIEST: 1, _MAX_TIMESTAMP: 7, _EARLIEST_LOCAL: 8, _LATEST_TIERED: 9}
_TO_END = -1
_LEADER_EPOCH_SINCE = 4
_NOT_FOUND = (-1, -1)
_READ_COMMITTED = 1
_MOST_RECORDS_READ = 20_000
_MOST_BYTES_READ = 16 * 1024 * 1024

OffsetResult = ListOffsetsResponse.ListOffsetsPartitionResponse


def find_partition(
    context: Context, topic_name: str, index: int, leader_epoch: int = -1
) -> tuple[Partition | None, ErrorCode]:
    """The partition if it is led here and the client's idea of its leader epoch is right, and what is wrong if not."""
    topic = context.cluster.topics.get(topic_name)
    if topic is None or not 0 <= index < len(topic.partitions):
        return None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    partition = topic.partitions[index]
    if partition.leader != context.broker.id:
        return None, ErrorCode.NOT_LEADER_OR_FOLLOWER
    if 0 <= leader_epoch < partition.leader_epoch:
        return None, ErrorCode.FENCED_LEADER_EPOCH
    if leader_epoch > partition.leader_epoch:
        return None, ErrorCode.UNKNOWN_LEADER_EPOCH
    return partition, ErrorCode.NONE


@handler(ListOffsetsRequest, min_version=1, max_version=10)
async def list_offsets(context: Context, request: ListOffsetsRequest) -> ListOffsetsResponse:
    """Look up timestamps and the special places -1 to -5."""
    response = ListOffsetsResponse()
    for topic in request.topics:
        look_up = partial(_list_offset, context, topic.name, isolation_level=request.isolation_level)
        found = await context.in_turns(topic.partitions, look_up)
        response.topics.append(ListOffsetsResponse.ListOffsetsTopicResponse(name=topic.name, partitions=found))
    return response


def _list_offset(
    context: Context, topic: str, asked: ListOffsetsRequest.ListOffsetsPartition, isolation_level: int
) -> OffsetResult:
    partition, error = find_partition(context, topic, asked.partition_index, asked.current_leader_epoch)
    if partition is None:
        return OffsetResult(partition_index=asked.partition_index, error_code=error)
    is_place = asked.timestamp < 0
    if is_place and context.api_version < _SINCE_VERSION.get(asked.timestamp, context.api_version + 1):
        return OffsetResult(partition_index=asked.partition_index, error_code=ErrorCode.UNSUPPORTED_VERSION)
    partition.log.retain(context.now_ms)
    timestamp, offset = _look_up(partition.log, asked.timestamp)
    log = partition.log
    end_offset = log.last_stable_offset if isolation_level == _READ_COMMITTED else log.high_watermark
    if asked.timestamp == _LATEST:
        offset = end_offset
    elif timestamp >= 0 and offset >= end_offset:
        timestamp, offset = _NOT_FOUND
    return OffsetResult(
        partition_index=asked.partition_index,
        error_code=0,
        timestamp=timestamp,
        offset=offset,
        leader_epoch=partition.leader_epoch if offset >= 0 and context.api_version >= _LEADER_EPOCH_SINCE else -1,
    )


def _look_up(log: PartitionLog, timestamp: int) -> tuple[int, int]:
    """Timestamp and offset of the record meant; (-1, -1) when there is none."""
    if timestamp == _LATEST:
        return -1, log.high_watermark
    if timestamp in {_EARLIEST, _EARLIEST_LOCAL}:
        return -1, log.start_offset
    if timestamp == _LATEST_TIERED:
        return _NOT_FOUND
    newest = timestamp == _MAX_TIMESTAMP
    batch = log.newest_batch() if newest else log.batch_at(timestamp)
    if batch is None:
        return _NOT_FOUND
    records = [record for record in _records(batch) if record[1] >= log.start_offset]
    if newest:
        return max(records, key=lambda record: (record[0], -record[1]), default=_NOT_FOUND)
    return next((record for record in records if record[0] >= timestamp), _NOT_FOUND)


def _records(batch: memoryview) -> list[tuple[int, int]]:
    header = parse_header(batch)
    if header.record_count > _MOST_RECORDS_READ:
        # too much work for one answer: the batch stands for its records
        return [(header.max_timestamp, header.base_offset)]
    try:
        return [
            (record.timestamp_ms, record.offset)
            for record in iterate_records(batch, verify=False, max_inflated_bytes=_MOST_BYTES_READ)
        ]
    except WireError:
        # stored as the producer sent it: a batch whose records cannot be read has no timestamps to offer
        return []


@handler(OffsetForLeaderEpochRequest, min_version=2, max_version=4)
async def offset_for_leader_epoch(
    context: Context, request: OffsetForLeaderEpochRequest
) -> OffsetForLeaderEpochResponse:
    """Say where the log of an epoch ends: at its end, for every epoch there was."""
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=await context.in_turns(topic.partitions, partial(_epoch_end, context, topic.topic)),
            )
            for topic in request.topics
        ]
    )


def _epoch_end(
    context: Context, topic: str, asked: OffsetForLeaderEpochRequest.OffsetForLeaderPartition
) -> OffsetForLeaderEpochResponse.EpochEndOffset:
    partition, error = find_partition(context, topic, asked.partition, asked.current_leader_epoch)
    result = OffsetForLeaderEpochResponse.EpochEndOffset(error_code=error, partition=asked.partition)
    if partition is not None and asked.leader_epoch <= partition.leader_epoch:
        result.leader_epoch = asked.leader_epoch
        result.end_offset = partition.log.end_offset
    return result


@handler(DeleteRecordsRequest, min_version=0, max_version=2)
async def delete_records(context: Context, request: DeleteRecordsRequest) -> DeleteRecordsResponse:
    """Move the start of logs forward."""
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsResponse.DeleteRecordsTopicResult(
                name=topic.name,
                partitions=await context.in_turns(topic.partitions, partial(_delete, context, topic.name)),
            )
            for topic in request.topics
        ]
    )


def _delete(
    context: Context, topic: str, asked: DeleteRecordsRequest.DeleteRecordsPartition
) -> DeleteRecordsResponse.DeleteRecordsPartitionResult:
    partition, error = find_partition(context, topic, asked.partition_index)
    low_watermark = -1
    if partition is not None and topic in INTERNAL_TOPICS:
        error = ErrorCode.INVALID_TOPIC_EXCEPTION
    elif partition is not None and partition.log.config.is_only_compacted:
        error = ErrorCode.POLICY_VIOLATION
    elif partition is not None:
        log = partition.log
        wanted = log.high_watermark if asked.offset == _TO_END else asked.offset
        if not 0 <= wanted <= log.high_watermark:
            error = ErrorCode.OFFSET_OUT_OF_RANGE
        else:
            log.delete_before(wanted)
            low_watermark = log.start_offset
    return DeleteRecordsResponse.DeleteRecordsPartitionResult(
        partition_index=asked.partition_index, low_watermark=low_watermark, error_code=error
    )
