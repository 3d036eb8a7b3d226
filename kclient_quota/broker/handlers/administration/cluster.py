"""What an administrator asks about brokers and does to replicas.

AlterReplicaLogDirs (34) v1-2 · DescribeLogDirs (35) v1-5 · ElectLeaders (43) v0-2 ·
AlterPartitionReassignments (45) v0-1 · ListPartitionReassignments (46) v0 · DescribeQuorum (55) v0-2.
KIP-113, KIP-183, KIP-455, KIP-460, KIP-595.

Behaviour: errors and messages as Kafka's. All replicas of a partition read one log, so a reassignment is done when it
is acknowledged and none is ever under way; the leader stays if it is among the new replicas. A partition is led by its
first replica that is up, so a preferred election is needed only where a reassignment has kept another leader. Each
broker has one log directory. The brokers are the quorum's voters; the metadata log is as long as there are topics.
Versions: AlterReplicaLogDirs 2 flexible. DescribeLogDirs 2 flexible; 3 an error of the whole; 4 bytes of the volume
(KIP-827); 5 cordoned directories (KIP-1066). ElectLeaders 1 unclean elections (KIP-460); 2 flexible.
AlterPartitionReassignments 1 whether the replication factor may change (KIP-860). DescribeQuorum 1 times of replicas
(KIP-836); 2 addresses of voters (KIP-853).
Gaps: replicas cannot be moved between directories, there is one.
"""

from collections.abc import Iterable, Iterator

from kclient_quota.broker.cluster_state import ClusterState, Partition
from kclient_quota.broker.request.context import Context
from kclient_quota.broker.request.registry import handler
from kclient_quota.wire.error_codes import ErrorCode
from kclient_quota.wire.messages import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)

_PREFERRED, _UNCLEAN = 0, 1
_METADATA_TOPIC = "__cluster_metadata"
_QUORUM_EPOCH = 1
_NODES_SINCE = 2
_UNKNOWN = "This server does not host this topic-partition."

Problem = tuple[ErrorCode, str | None]
_FINE: Problem = (ErrorCode.NONE, None)


def _partition(cluster: ClusterState, name: str, index: int) -> Partition | None:
    topic = cluster.topics.get(name)
    return topic.partitions[index] if topic is not None and 0 <= index < len(topic.partitions) else None


# -- log directories


@handler(DescribeLogDirsRequest, min_version=1, max_version=5)
async def describe_log_dirs(context: Context, request: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
    """The replicas of the asked broker in its one directory."""
    cluster = context.cluster
    wanted = None if request.topics is None else {topic.topic: set(topic.partitions) for topic in request.topics}
    topics = []
    for topic in cluster.topics.values():
        partitions = [
            DescribeLogDirsResponse.DescribeLogDirsPartition(
                partition_index=partition.index, partition_size=partition.log.size_bytes, offset_lag=0
            )
            for partition in topic.partitions
            if context.broker.id in partition.replicas
            and (wanted is None or partition.index in wanted.get(topic.name, ()))
        ]
        if partitions:
            topics.append(DescribeLogDirsResponse.DescribeLogDirsTopic(name=topic.name, partitions=partitions))
    result = DescribeLogDirsResponse.DescribeLogDirsResult(log_dir=_log_dir(context), topics=topics)
    return DescribeLogDirsResponse(results=[result])


def _log_dir(context: Context) -> str:
    return f"broker-{context.broker.id}"


@handler(AlterReplicaLogDirsRequest, min_version=1, max_version=2)
async def alter_replica_log_dirs(context: Context, request: AlterReplicaLogDirsRequest) -> AlterReplicaLogDirsResponse:
    """There is one directory: whoever names it has nothing to move, another one is not there."""
    results = []
    for directory in request.dirs:
        for topic in directory.topics:
            partitions = [
                AlterReplicaLogDirsResponse.AlterReplicaLogDirPartitionResult(
                    partition_index=index, error_code=_move_error(context, directory.path, topic.name, index)
                )
                for index in topic.partitions
            ]
            results.append(
                AlterReplicaLogDirsResponse.AlterReplicaLogDirTopicResult(topic_name=topic.name, partitions=partitions)
            )
    return AlterReplicaLogDirsResponse(results=results)


def _move_error(context: Context, path: str, name: str, index: int) -> ErrorCode:
    if path != _log_dir(context):
        return ErrorCode.LOG_DIR_NOT_FOUND
    partition = _partition(context.cluster, name, index)
    is_here = partition is not None and context.broker.id in partition.replicas
    return ErrorCode.NONE if is_here else ErrorCode.REPLICA_NOT_AVAILABLE


# -- leaders


@handler(ElectLeadersRequest, min_version=0, max_version=2)
async def elect_leaders(context: Context, request: ElectLeadersRequest) -> ElectLeadersResponse:
    """Elect; where all partitions are meant, those that need none are left out, as Kafka does."""
    if request.election_type not in {_PREFERRED, _UNCLEAN}:
        return ElectLeadersResponse(error_code=ErrorCode.INVALID_REQUEST)
    cluster = context.cluster
    means_all = request.topic_partitions is None
    results = []
    for name, indexes in _meant(cluster, request):
        found = [(index, _elect(cluster, name, index, request.election_type)) for index in indexes]
        rows = [
            ElectLeadersResponse.PartitionResult(partition_id=index, error_code=error, error_message=message)
            for index, (error, message) in found
            if not (means_all and error == ErrorCode.ELECTION_NOT_NEEDED)
        ]
        if rows:
            results.append(ElectLeadersResponse.ReplicaElectionResult(topic=name, partition_result=rows))
    return ElectLeadersResponse(replica_election_results=results)


def _meant(cluster: ClusterState, request: ElectLeadersRequest) -> Iterator[tuple[str, Iterable[int]]]:
    if request.topic_partitions is None:
        yield from ((topic.name, range(len(topic.partitions))) for topic in list(cluster.topics.values()))
    else:
        yield from ((wanted.topic, wanted.partitions) for wanted in request.topic_partitions)


def _elect(cluster: ClusterState, name: str, index: int, kind: int) -> Problem:
    partition = _partition(cluster, name, index)
    if partition is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {name}-{index}"
    preferred = partition.replicas[0]
    is_led = partition.leader == preferred if kind == _PREFERRED else cluster.has_leader(partition)
    if is_led:
        return ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition."
    if kind == _PREFERRED and not cluster.brokers[preferred].is_up:
        return ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, "The preferred leader was not available."
    if not any(cluster.brokers[replica].is_up for replica in partition.replicas):
        return ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, "Eligible topic partition leaders are not available."
    cluster.lead(cluster.topics[name], partition)
    return _FINE


# -- reassignments


@handler(AlterPartitionReassignmentsRequest, min_version=0, max_version=1)
async def alter_partition_reassignments(
    context: Context, request: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse:
    """Move partitions to other replicas, each on its own, at once."""
    may_resize = request.allow_replication_factor_change
    responses = [
        AlterPartitionReassignmentsResponse.ReassignableTopicResponse(
            name=topic.name,
            partitions=[
                _reassigned(partition, _reassign(context.cluster, topic.name, partition, may_resize=may_resize))
                for partition in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=may_resize, error_message=None, responses=responses
    )


def _reassigned(
    wanted: AlterPartitionReassignmentsRequest.ReassignablePartition, problem: Problem
) -> AlterPartitionReassignmentsResponse.ReassignablePartitionResponse:
    error, message = problem
    return AlterPartitionReassignmentsResponse.ReassignablePartitionResponse(
        partition_index=wanted.partition_index, error_code=error, error_message=message
    )


def _reassign(
    cluster: ClusterState,
    name: str,
    wanted: AlterPartitionReassignmentsRequest.ReassignablePartition,
    *,
    may_resize: bool,
) -> Problem:
    partition = _partition(cluster, name, wanted.partition_index)
    if partition is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, _UNKNOWN
    replicas = wanted.replicas
    if replicas is None:
        return ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, None
    problem = _assignment_problem(cluster, replicas)
    if problem:
        return ErrorCode.INVALID_REPLICA_ASSIGNMENT, problem
    if not may_resize and len(replicas) != len(partition.replicas):
        return ErrorCode.INVALID_REPLICATION_FACTOR, "The replication factor must not change."
    cluster.reassign(cluster.topics[name], partition, replicas)
    return _FINE


def _assignment_problem(cluster: ClusterState, replicas: list[int]) -> str | None:
    if not replicas:
        return "The manual partition assignment includes an empty replica list."
    for replica in replicas:
        if replicas.count(replica) > 1:
            return f"The manual partition assignment includes the broker {replica} more than once."
        if replica not in cluster.brokers:
            return f"The manual partition assignment includes broker {replica}, but no such broker is registered."
    return None


@handler(ListPartitionReassignmentsRequest, min_version=0, max_version=0)
async def list_partition_reassignments(
    _context: Context, _request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    """None is ever under way."""
    return ListPartitionReassignmentsResponse(error_message=None, topics=[])


# -- the quorum


@handler(DescribeQuorumRequest, min_version=0, max_version=2)
async def describe_quorum(context: Context, request: DescribeQuorumRequest) -> DescribeQuorumResponse:
    """The brokers are the voters; the controller leads."""
    wanted = [(topic.topic_name, [row.partition_index for row in topic.partitions]) for topic in request.topics]
    if wanted != [(_METADATA_TOPIC, [0])]:
        return DescribeQuorumResponse(error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, error_message=_UNKNOWN)
    cluster = context.cluster
    end_offset = len(cluster.topics)
    voters = [
        DescribeQuorumResponse.ReplicaState(
            replica_id=broker.id,
            log_end_offset=end_offset,
            last_fetch_timestamp=context.now_ms,
            last_caught_up_timestamp=context.now_ms,
        )
        for broker in cluster.brokers.values()
        if broker.is_up
    ]
    partition = DescribeQuorumResponse.PartitionData(
        partition_index=0,
        leader_id=cluster.controller_id,
        leader_epoch=_QUORUM_EPOCH,
        high_watermark=end_offset,
        current_voters=voters,
        observers=[],
    )
    topic = DescribeQuorumResponse.TopicData(topic_name=_METADATA_TOPIC, partitions=[partition])
    if context.api_version < _NODES_SINCE:
        return DescribeQuorumResponse(topics=[topic])
    nodes = [
        DescribeQuorumResponse.Node(
            node_id=broker.id,
            listeners=[
                DescribeQuorumResponse.Listener(name=name, host=broker.host, port=port)
                for name, port in broker.ports.items()
            ],
        )
        for broker in cluster.brokers.values()
        if broker.is_up
    ]
    return DescribeQuorumResponse(topics=[topic], nodes=nodes)
