"""What an administrator does to topics.

CreateTopics (19) v2-7 · DeleteTopics (20) v1-6 · CreatePartitions (37) v0-3. KIP-4, KIP-195, KIP-516, KIP-599.

Behaviour: replicas and leaders are spread in turn unless an assignment is given; a replication factor or partition
count of -1 means the broker's default. The controller-mutation quota counts partitions: newer versions are refused with
THROTTLING_QUOTA_EXCEEDED, older ones delayed. Any broker answers, there is no controller to be found.
Versions: CreateTopics 3 KIP-219; 4 defaults by -1 (KIP-464); 5 flexible, configurations in the answer (KIP-525);
6 THROTTLING_QUOTA_EXCEEDED (KIP-599); 7 topic ids. DeleteTopics 2 KIP-219; 4 flexible; 5 messages, KIP-599; 6 by id.
CreatePartitions 1 KIP-219; 2 flexible; 3 KIP-599.
Gaps: `timeout_ms` has no meaning, as everything is done at once; names may differ in `.` and `_` alone; a topic
may have 100,000 partitions, of which Kafka makes 10,000 in one request.
"""

from collections import Counter
from functools import partial
from typing import Any
from uuid import UUID

from kclient_quota.broker.authorizer import CLUSTER_NAME, AclOperation, ResourceType
from kclient_quota.broker.cluster_state import TOPIC, ClusterState, Partition, Topic
from kclient_quota.broker.configs.resource_configs import effective_topic_configs, topic_config_problem
from kclient_quota.broker.configs.topic_names import MAX_PARTITIONS, topic_name_problem
from kclient_quota.broker.request.context import AT_ONCE, Context
from kclient_quota.broker.request.registry import handler
from kclient_quota.wire.codec import encode_element
from kclient_quota.wire.error_codes import ErrorCode
from kclient_quota.wire.messages import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from kclient_quota.wire.schema import ZERO_UUID

_CONFIGS_SINCE = 5
_BY_ID_SINCE = 6
_DEFAULT = -1
_DENIED = (ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Authorization failed.")
_UNKNOWN = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition.")
_NO_REPLICAS = "Replication factor must be larger than 0, or -1 to use the default value."
_EXCESSIVE = (ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions per request.")
_METADATA = "__cluster_metadata"
_THROTTLED = (ErrorCode.THROTTLING_QUOTA_EXCEEDED, "The throttling quota has been exceeded.")

Told = Any
"""A configuration, encoded."""
Problem = tuple[ErrorCode, str | None]
_FINE: Problem = (ErrorCode.NONE, None)


# -- CreateTopics


@handler(CreateTopicsRequest, min_version=2, max_version=7)
async def create_topics(context: Context, request: CreateTopicsRequest) -> CreateTopicsResponse:
    """Create each topic on its own; one that fails does not keep the others."""
    counts = Counter(topic.name for topic in request.topics)
    may_create_any = context.may(AclOperation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME)
    results = []
    defaults: list[Told] = []
    for topic in {topic.name: topic for topic in request.topics}.values():  # one answer for each name
        await context.turn_after(max(1, topic.num_partitions))
        if not (may_create_any or context.may(AclOperation.CREATE, ResourceType.TOPIC, topic.name)):
            results.append(_not_created(topic.name, _DENIED))
        elif counts[topic.name] > 1:
            problem: Problem = (ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
            results.append(_not_created(topic.name, problem))
        else:
            results.append(await _create(context, topic, defaults, validate_only=request.validate_only))
    return CreateTopicsResponse(topics=results)


async def _create(
    context: Context, wanted: CreateTopicsRequest.CreatableTopic, defaults: list[Told], *, validate_only: bool
) -> CreateTopicsResponse.CreatableTopicResult:
    cluster = context.cluster
    assignment = {entry.partition_index: list(entry.broker_ids) for entry in wanted.assignments}
    partitions = len(assignment) or (
        cluster.default_partitions if wanted.num_partitions == _DEFAULT else wanted.num_partitions
    )
    replication = len(next(iter(assignment.values()), [])) or (
        1 if wanted.replication_factor == _DEFAULT else wanted.replication_factor
    )
    configs = {config.name: config.value for config in wanted.configs}
    problem = _creation_problem(cluster, wanted, assignment, partitions, replication)
    if not problem[0] and (config_problem := _configs_problem(configs)):
        problem = (ErrorCode.INVALID_CONFIG, config_problem)
    if not problem[0] and not context.mutations.record(partitions, context.now_ms):
        problem = _THROTTLED
    ahead, fresh_id = [], None
    if not problem[0] and partitions > AT_ONCE and not validate_only:
        fresh_id = cluster.new_topic_id()
        make = partial(cluster.partition_ahead, fresh_id)
        ahead = await context.in_turns(range(partitions), lambda index: make(index, assignment.get(index), replication))
        # others had their turns
        problem = _existence_problem(cluster, wanted.name)
    if problem[0]:
        return _not_created(wanted.name, problem)
    topic_id = ZERO_UUID
    may_see = context.may(AclOperation.DESCRIBE_CONFIGS, ResourceType.TOPIC, wanted.name)
    if not validate_only:
        for key, value in configs.items():
            cluster.set_config(TOPIC, wanted.name, key, value)
        made = cluster.create_topic(
            wanted.name,
            partitions,
            replication_factor=replication,
            assignment=assignment or None,
            topic_id=fresh_id,
            ahead=ahead,
        )
        topic_id = made.topic_id
    if not may_see:
        return CreateTopicsResponse.CreatableTopicResult(
            name=wanted.name,
            topic_id=topic_id,
            error_code=0,
            error_message=None,
            topic_config_error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            configs=[],
        )
    return CreateTopicsResponse.CreatableTopicResult(
        name=wanted.name,
        topic_id=topic_id,
        error_code=0,
        error_message=None,
        num_partitions=partitions,
        replication_factor=replication,
        configs=_told_configs(context, wanted.name, defaults),
    )


def _told_configs(context: Context, name: str, defaults: list[Told]) -> list[Told]:
    """What holds for a topic, encoded once for all topics of a request that have nothing of their own."""
    has_own = (TOPIC, name) in context.cluster.configs
    if defaults and not has_own:
        return defaults
    told = [
        encode_element(
            CreateTopicsResponse.CreatableTopicConfigs(
                name=entry.name, value=entry.value, read_only=False, config_source=entry.source, is_sensitive=False
            ),
            context.api_version,
        )
        for entry in effective_topic_configs(context.cluster, name)
        if context.api_version >= _CONFIGS_SINCE
    ]
    if not has_own:
        defaults.extend(told)
    return told


def _not_created(name: str, problem: Problem) -> CreateTopicsResponse.CreatableTopicResult:
    return CreateTopicsResponse.CreatableTopicResult(
        name=name, error_code=problem[0], error_message=problem[1], configs=[]
    )


def _creation_problem(
    cluster: ClusterState,
    wanted: CreateTopicsRequest.CreatableTopic,
    assignment: dict[int, list[int]],
    partitions: int,
    replication: int,
) -> Problem:
    if (problem := _name_problem(wanted.name))[0] or (problem := _existence_problem(cluster, wanted.name))[0]:
        return problem
    if assignment:
        return _given_problem(wanted) or _assignment_problem(cluster, assignment)
    if partitions < 1:
        return ErrorCode.INVALID_PARTITIONS, "Number of partitions was set to an invalid non-positive value."
    if partitions > MAX_PARTITIONS:
        return _EXCESSIVE
    return _replication_problem(cluster, replication)


def _name_problem(name: str) -> Problem:
    if problem := topic_name_problem(name):
        return ErrorCode.INVALID_TOPIC_EXCEPTION, problem
    if name == _METADATA:
        return ErrorCode.INVALID_REQUEST, f"Creation of internal topic {_METADATA} is prohibited."
    return _FINE


def _given_problem(wanted: CreateTopicsRequest.CreatableTopic) -> Problem | None:
    """What is wrong with how an assignment is given, whatever it is."""
    for what, number in (("replication factor", wanted.replication_factor), ("numPartitions", wanted.num_partitions)):
        if number != _DEFAULT:
            message = f"A manual partition assignment was specified, but {what} was not set to -1."
            return ErrorCode.INVALID_REQUEST, message
    (index, times), *_ = Counter(entry.partition_index for entry in wanted.assignments).most_common(1)
    if times > 1:
        message = f"Found multiple manual partition assignments for partition {index}"
        return ErrorCode.INVALID_REPLICA_ASSIGNMENT, message
    return None


def _existence_problem(cluster: ClusterState, name: str) -> Problem:
    if name in cluster.topics:
        return ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists."
    return _FINE


def _replication_problem(cluster: ClusterState, replication: int) -> Problem:
    if replication < 1:
        return ErrorCode.INVALID_REPLICATION_FACTOR, _NO_REPLICAS
    if replication > len(cluster.brokers):
        message = (
            f"Unable to replicate the partition {replication} time(s): The target replication factor of {replication} "
            f"cannot be reached because only {len(cluster.brokers)} broker(s) are registered."
        )
        return ErrorCode.INVALID_REPLICATION_FACTOR, message
    return _FINE


def _assignment_problem(cluster: ClusterState, assignment: dict[int, list[int]]) -> Problem:
    if sorted(assignment) != list(range(len(assignment))):
        return (
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "partitions should be a consecutive 0-based integer sequence",
        )
    sizes = {len(replicas) for replicas in assignment.values()}
    for replicas in assignment.values():
        is_known = all(replica in cluster.brokers for replica in replicas)
        if not replicas or not is_known or len(set(replicas)) < len(replicas) or len(sizes) > 1:
            return ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"The manual partition assignment {replicas} is not possible."
    return _FINE


def _configs_problem(configs: dict[str, str | None]) -> str | None:
    problems = (topic_config_problem(key, value) for key, value in configs.items())
    return next((problem for problem in problems if problem), None)


# -- DeleteTopics


@handler(DeleteTopicsRequest, min_version=1, max_version=6)
async def delete_topics(context: Context, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
    """Delete each topic, by name or by id."""
    if context.api_version < _BY_ID_SINCE:
        wanted: list[tuple[str | None, UUID]] = [(name, ZERO_UUID) for name in request.topic_names]
    else:
        wanted = [(state.name, state.topic_id) for state in request.topics]
    results = []
    for one in wanted:
        await context.turn_after()
        results.append(await _delete(context, one))
    return DeleteTopicsResponse(responses=results)


async def _delete(context: Context, wanted: tuple[str | None, UUID]) -> DeleteTopicsResponse.DeletableTopicResult:
    name, topic_id = wanted
    cluster = context.cluster
    topic = cluster.topics_by_id.get(topic_id) if name is None else cluster.topics.get(name)
    if topic is None:
        error = ErrorCode.UNKNOWN_TOPIC_ID if name is None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return _deletion(name, topic_id, (error, "This server does not host this topic."))
    if not context.may(AclOperation.DESCRIBE, ResourceType.TOPIC, topic.name):
        return _deletion(name, topic_id if name is None else ZERO_UUID, _DENIED)
    if not context.may(AclOperation.DELETE, ResourceType.TOPIC, topic.name):
        return _deletion(topic.name, topic.topic_id, _DENIED)
    if not context.mutations.record(len(topic.partitions), context.now_ms):
        return _deletion(topic.name, topic.topic_id, _THROTTLED)
    cluster.remove_topic(topic.name)
    try:
        await context.in_turns(topic.partitions, _close)
    except OSError:
        # it is gone all the same
        for partition in topic.partitions:
            _close(partition)
        raise
    return _deletion(topic.name, topic.topic_id, _FINE)


def _close(partition: Partition) -> None:
    partition.log.close()


def _deletion(name: str | None, topic_id: UUID, problem: Problem) -> DeleteTopicsResponse.DeletableTopicResult:
    return DeleteTopicsResponse.DeletableTopicResult(
        name=name, topic_id=topic_id, error_code=problem[0], error_message=problem[1]
    )


# -- CreatePartitions


@handler(CreatePartitionsRequest, min_version=0, max_version=3)
async def create_partitions(context: Context, request: CreatePartitionsRequest) -> CreatePartitionsResponse:
    """Let topics have more partitions."""
    results = []
    for wanted in request.topics:
        await context.turn_after()
        error, message = await _add(context, wanted, validate_only=request.validate_only)
        results.append(
            CreatePartitionsResponse.CreatePartitionsTopicResult(
                name=wanted.name, error_code=error, error_message=message
            )
        )
    return CreatePartitionsResponse(results=results)


async def _add(
    context: Context, wanted: CreatePartitionsRequest.CreatePartitionsTopic, *, validate_only: bool
) -> Problem:
    cluster = context.cluster
    given = None if wanted.assignments is None else [list(entry.broker_ids) for entry in wanted.assignments]
    topic = cluster.topics.get(wanted.name)
    if topic is None:
        return _UNKNOWN
    more = wanted.count - len(topic.partitions)
    problem = _growth_problem(cluster, topic, wanted)
    if not problem[0] and not context.mutations.record(more, context.now_ms):
        problem = _THROTTLED
    if problem[0] or validate_only:
        return problem
    if more <= AT_ONCE:
        cluster.add_partitions(topic, wanted.count, given)
        return _FINE
    ahead = await _ahead(context, topic, wanted.count, given)
    # others had their turns: it may be gone, or have grown
    if cluster.topics.get(wanted.name) is not topic:
        return _UNKNOWN
    problem = _growth_problem(cluster, topic, wanted)
    if not problem[0]:
        cluster.add_ahead(topic, ahead[len(topic.partitions) - ahead[0].index :])
    return problem


async def _ahead(context: Context, topic: Topic, count: int, given: list[list[int]] | None) -> list[Partition]:
    """The partitions that a topic does not have yet."""
    present, cluster, replication = len(topic.partitions), context.cluster, topic.replication_factor
    replicas = dict(enumerate(given or (), present))
    make = partial(cluster.partition_ahead, topic.topic_id)
    return await context.in_turns(range(present, count), lambda index: make(index, replicas.get(index), replication))


def _growth_problem(
    cluster: ClusterState, topic: Topic, wanted: CreatePartitionsRequest.CreatePartitionsTopic
) -> Problem:
    present = len(topic.partitions)
    if wanted.count == present:
        return ErrorCode.INVALID_PARTITIONS, f"Topic already has {present} partition(s)."
    if wanted.count > MAX_PARTITIONS:
        return _EXCESSIVE
    if wanted.count < present:
        message = (
            f"The topic {topic.name} currently has {present} partition(s); {wanted.count} would not be an increase."
        )
        return ErrorCode.INVALID_PARTITIONS, message
    if wanted.assignments is None:
        return _FINE
    if len(wanted.assignments) != wanted.count - present:
        message = (
            f"Attempted to add {wanted.count - present} additional partition(s), but only "
            f"{len(wanted.assignments)} assignment(s) were specified."
        )
        return ErrorCode.INVALID_REPLICA_ASSIGNMENT, message
    return _assignment_problem(cluster, {i: list(entry.broker_ids) for i, entry in enumerate(wanted.assignments)})
