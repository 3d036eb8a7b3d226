"""What all brokers of a cluster agree on: topics, partitions and their leaders, configurations, quotas, users."""

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from uuid import UUID

from kclient_quota.broker.authorizer import Authorizer
from kclient_quota.broker.log.log_config import LOG_KEYS, OTHER_LOG_KEYS, LogConfig
from kclient_quota.broker.log.partition_log import PartitionLog
from kclient_quota.broker.manners import KAFKA, ThrottleManner
from kclient_quota.broker.quota_key import Change, quota_key
from kclient_quota.errors import ConfigError
from kclient_quota.quota.entity import ClientQuotaEntity

if TYPE_CHECKING:
    from kclient_quota.broker.log.partition_log import LogStore
    from kclient_quota.broker.security.bearer_tokens import TokenRules
    from kclient_quota.broker.security.scram_credentials import ScramCredential

NO_LEADER = -1
TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
"""Kafka's `ConfigResource.Type` ids."""

_ANY_CONFIG = LogConfig()
QuotaEntity = ClientQuotaEntity
QuotaObserver = Callable[[QuotaEntity, str, float | None], None]


@dataclass(slots=True, eq=False)
class BrokerInfo:
    """One node of the cluster.

    Attributes:
        id: Kafka's node id, from 1 on.
        host: what clients are told to connect to.
        ports: what clients are told, by listener name; filled when the listener has bound.
        is_up: whether it answers; a stopped broker leads nothing.
    """

    id: int
    host: str
    ports: dict[str, int] = field(default_factory=dict)
    is_up: bool = True


@dataclass(slots=True, eq=False)
class Partition:
    """One partition.

    Attributes:
        index: its number in the topic.
        replicas: broker ids, the preferred leader first.
        leader: broker id, `NO_LEADER` while none of the replicas is up.
        leader_epoch: how often leadership has changed.
        log: its batches; every replica reads the same.
    """

    index: int
    replicas: list[int]
    leader: int
    log: PartitionLog
    leader_epoch: int = 0


@dataclass(slots=True, eq=False)
class Topic:
    """One topic.

    Attributes:
        name: unique in the cluster.
        topic_id: Kafka's random id (KIP-516).
        partitions: by index.
        replication_factor: of each partition.
    """

    name: str
    topic_id: UUID
    partitions: list[Partition]
    replication_factor: int


class ClusterState:
    """State of one cluster. Not thread-safe: it lives on the broker's loop.

    Args:
        cluster_id: Kafka's cluster id.
        new_topic_id: a fresh UUID per call; kept.
        new_log: a fresh, empty log with this configuration per call.

    Attributes:
        brokers: by node id.
        topics: by name.
        topics_by_id: the same by id.
        configs: what was set dynamically, by (resource type, resource name).
        quotas: values by key by entity.
        users: whatever the SASL mechanisms keep of each user, by name.
        told: each topic as Metadata answers it, by name and version, until it changes.
        features: levels that were finalized in place of a new cluster's (`configs.features`).
        scram: credentials that were set, by user and mechanism (KIP-554); None where one was deleted.
        authorizer: the access control lists.
        tokens: which bearer tokens are taken; None for none.
        is_auto_create_enabled: whether Metadata makes the topics it is asked for (`auto.create.topics.enable`).
        default_partitions: how many partitions such topics have (`num.partitions`).
        manner: how its brokers throttle.
        on_quota: called with every quota that is set (None: removed).
        on_config: called with the type and name of every resource whose configuration is set.
        on_topic_gone: called with every topic that is deleted.
        new_store: where the log of a partition is to be kept that is made ahead (topic id, index, log), or None.
        on_disk: waits until the disk itself has what is kept, where `fsync` promises that; or None.
        on_save: called with what has changed before that is acknowledged, if it is to be kept; or None. An OSError of
            it means that nothing of it was kept, and that it has been undone.
        changes: what is to be saved: ("topic", name), ("config", type, name), ("quota", *entity), ("acl", *acl),
            ("share", group, topic id, partition).
    """

    def __init__(
        self,
        *,
        cluster_id: str,
        brokers: Iterable[BrokerInfo],
        new_topic_id: Callable[[], UUID],
        new_log: Callable[[LogConfig], PartitionLog],
    ) -> None:
        self.cluster_id = cluster_id
        self.brokers = {broker.id: broker for broker in brokers}
        self.topics: dict[str, Topic] = {}
        self.topics_by_id: dict[UUID, Topic] = {}
        self.configs: dict[tuple[int, str], dict[str, str]] = {}
        self.quotas: dict[ClientQuotaEntity, dict[str, float]] = {}
        self.users: dict[str, object] = {}
        self.told: dict[str, dict[int, bytes]] = {}
        self.features: dict[str, int] = {}
        self.scram: dict[tuple[str, int], ScramCredential | None] = {}
        self.authorizer = Authorizer()
        self.tokens: TokenRules | None = None
        self.is_auto_create_enabled = True
        self.default_partitions = 1
        self.manner: ThrottleManner = KAFKA
        self.on_quota: list[QuotaObserver] = []
        self.on_config: list[Callable[[int, str], None]] = []
        self.on_topic_gone: list[Callable[[Topic], None]] = []
        self.on_save: Callable[[ClusterState, Mapping[Change, None]], None] | None = None
        self.new_store: Callable[[UUID, int, PartitionLog], LogStore] | None = None
        self.on_disk: Callable[[], Awaitable[OSError | None]] | None = None
        self.changes: dict[Change, None] = {}
        self.new_topic_id = new_topic_id
        self._new_log = new_log
        self._listed: dict[str, tuple[UUID, int]] = {}
        self._directory: Mapping[str, tuple[UUID, int]] | None = None
        self._next_leader = 0
        self._next_producer_id = 0

    @property
    def directory(self) -> Mapping[str, tuple[UUID, int]]:
        """Id and number of partitions of every topic by name; the same object as long as nothing of it changes."""
        if self._directory is None:
            # entry by entry it would be made anew for a single change of 100,000 topics
            self._directory = self._listed.copy()
        return self._directory

    @property
    def controller_id(self) -> int:
        """The running broker with the lowest id, as clients are told; -1 without any."""
        return min((broker.id for broker in self.brokers.values() if broker.is_up), default=-1)

    # -- topics

    def create_topic(
        self,
        name: str,
        partitions: int,
        *,
        replication_factor: int = 1,
        assignment: Mapping[int, list[int]] | None = None,
        topic_id: UUID | None = None,
        ahead: list[Partition] | None = None,
    ) -> Topic:
        """Add a topic, its leaders spread over the brokers in turn.

        Args:
            name: the topic.
            partitions: how many; counted from `assignment` when that is given.
            replication_factor: replicas of each, at most as many as brokers.
            assignment: broker ids by partition index, the leader first.
            topic_id: keep this id (a topic read back from disk).
            ahead: its partitions, made by `partition_ahead`.

        Raises:
            ConfigError: the topic exists.
        """
        if name in self.topics:
            raise ConfigError(f"topic {name!r} exists already")
        made = Topic(name, topic_id or self.new_topic_id(), [], replication_factor)
        self.topics[name] = made
        self.topics_by_id[made.topic_id] = made
        self.changed("topic", name)
        if ahead:
            self.add_ahead(made, ahead)
        elif assignment:
            config = self._log_config(name)
            for index in sorted(assignment):
                self._add_partition(made, assignment[index], config)
        else:
            self.add_partitions(made, partitions)
        self._list(made)
        return made

    def add_partitions(self, topic: Topic, total: int, assignment: list[list[int]] | None = None) -> None:
        """Let `topic` have `total` partitions; `assignment` gives the broker ids of each that is added."""
        self.changed("topic", topic.name)
        given = iter(assignment) if assignment else iter(list[list[int]]())
        config = self._log_config(topic.name)
        while len(topic.partitions) < total:
            self._add_partition(topic, next(given, []) or self._next_replicas(topic.replication_factor), config)
        self._list(topic)

    def partition_ahead(
        self, topic_id: UUID, index: int, replicas: list[int] | None, replication_factor: int
    ) -> Partition:
        """A partition that is in no topic yet: very many are made by and by, and are there all at once."""
        replicas = list(replicas or self._next_replicas(replication_factor))
        log = self._new_log(_ANY_CONFIG)
        if self.new_store is not None:
            log.store = self.new_store(topic_id, index, log)
        return Partition(index, replicas, self._elect(replicas), log)

    def add_ahead(self, topic: Topic, ahead: list[Partition]) -> None:
        """Let a topic have partitions that were made ahead."""
        topic.partitions.extend(ahead)
        self._list(topic)
        self.refresh_log_configs(topic.name)
        self.changed("topic", topic.name)
        for partition in ahead:
            if not self.has_leader(partition):
                partition.leader = self._elect(partition.replicas)

    def delete_topic(self, name: str) -> Topic:
        """Remove a topic and recycle its logs.

        Raises:
            KeyError: there is no such topic.
        """
        topic = self.remove_topic(name)
        for partition in topic.partitions:
            partition.log.close()
        return topic

    def remove_topic(self, name: str) -> Topic:
        """Let a topic be no more; its logs are still to be closed.

        Raises:
            KeyError: there is no such topic.
        """
        topic = self.topics.pop(name)
        del self._listed[name]
        del self.topics_by_id[topic.topic_id]
        if self.configs.pop((TOPIC, name), None) is not None:
            self.changed("config", TOPIC, name)
        self.changed("topic", name)
        for observer in self.on_topic_gone:
            observer(topic)
        return topic

    def _list(self, topic: Topic) -> None:
        self._listed[topic.name] = topic.topic_id, len(topic.partitions)
        self._directory = None

    def _next_replicas(self, replication_factor: int) -> list[int]:
        ids = sorted(self.brokers)
        first = self._next_leader % len(ids)
        self._next_leader += 1
        return [ids[(first + step) % len(ids)] for step in range(min(replication_factor, len(ids)))]

    def _add_partition(self, topic: Topic, replicas: list[int], config: LogConfig) -> None:
        leader = self._elect(replicas)
        topic.partitions.append(Partition(len(topic.partitions), list(replicas), leader, self._new_log(config)))

    # -- leaders

    def set_broker_up(self, broker_id: int, *, is_up: bool) -> None:
        """Take a broker out of service or back in; partitions are led by their first replica that is up."""
        self.brokers[broker_id].is_up = is_up
        self.told.clear()
        for topic in self.topics.values():
            for partition in topic.partitions:
                self.lead(topic, partition)

    def lead(self, topic: Topic, partition: Partition) -> None:
        """Let the first replica that is up lead."""
        leader = self._elect(partition.replicas)
        if leader != partition.leader:
            partition.leader = leader
            partition.leader_epoch += 1
            self.changed("topic", topic.name)
            partition.log.wake()

    def has_leader(self, partition: Partition) -> bool:
        """Whether a broker that is up leads it."""
        return partition.leader != NO_LEADER and self.brokers[partition.leader].is_up

    def reassign(self, topic: Topic, partition: Partition, replicas: list[int]) -> None:
        """Give a partition other replicas; its leader stays if it is one of them."""
        partition.replicas = list(replicas)
        self.changed("topic", topic.name)
        if partition.leader not in replicas:
            self.lead(topic, partition)

    def partitions(self) -> Iterator[Partition]:
        """Every partition of every topic."""
        for topic in self.topics.values():
            yield from topic.partitions

    def _elect(self, replicas: list[int]) -> int:
        return next((replica for replica in replicas if self.brokers[replica].is_up), NO_LEADER)

    # -- configurations

    def config(self, resource_type: int, name: str, key: str) -> str | None:
        """A dynamically set value; a broker's falls back on the cluster-wide default (resource name "")."""
        value = self.configs.get((resource_type, name), {}).get(key)
        if value is None and resource_type == BROKER and name:
            return self.config(BROKER, "", key)
        return value

    def set_config(self, resource_type: int, name: str, key: str, value: str | None) -> None:
        """Set a value dynamically; None takes it back to its default. A topic's logs follow."""
        values = self.configs.setdefault((resource_type, name), {})
        if value is None:
            values.pop(key, None)
        else:
            values[key] = value
        if not values:
            del self.configs[resource_type, name]
        self.changed("config", resource_type, name)
        for observer in self.on_config:
            observer(resource_type, name)
        if resource_type in {TOPIC, BROKER}:
            self.refresh_log_configs(name if resource_type == TOPIC else None)

    def refresh_log_configs(self, name: str | None = None) -> None:
        """Let the logs of one topic, or of all, obey what is configured now."""
        topics = self.topics.values() if name is None else filter(None, [self.topics.get(name)])
        for topic in topics:
            config = self._log_config(topic.name)
            for partition in topic.partitions:
                partition.log.config = config

    def _log_config(self, topic: str) -> LogConfig:
        values = self.configs.get((TOPIC, topic), {})
        keys = {**LOG_KEYS, **OTHER_LOG_KEYS}
        found = {key: values.get(key) or self.config(BROKER, "", broker_key) for key, broker_key in keys.items()}
        return LogConfig.of(found)

    # -- quotas

    def set_quota(self, entity: QuotaEntity, key: str, value: float | None) -> None:
        """Set one quota of an entity, or take it away (None); brokers are told."""
        values = self.quotas.setdefault(entity, {})
        if value is None:
            values.pop(key, None)
        else:
            values[key] = value
        if not values:
            del self.quotas[entity]
        self.changed("quota", *quota_key(entity))
        for observer in self.on_quota:
            observer(entity, key, value)

    # -- keeping

    def changed(self, *what: str | int | None) -> None:
        """Note that something is to be saved before it is acknowledged."""
        self.changes[what] = None
        if what[0] == "topic":
            self._directory = None
            self.told.pop(str(what[1]), None)

    def save(self) -> None:
        """Let what has changed be kept.

        Raises:
            OSError: it could not be kept (a full disk), and has been undone.
        """
        changes, self.changes = self.changes, {}
        if self.on_save is not None:
            self.on_save(self, changes)

    # -- producers

    def next_producer_id(self) -> int:
        """A producer id nobody has."""
        self._next_producer_id += 1
        return self._next_producer_id - 1

    def reserve_producer_ids(self, first_free: int) -> None:
        """Hand out no producer id below `first_free` again (ids read back from disk)."""
        self._next_producer_id = max(self._next_producer_id, first_free)
