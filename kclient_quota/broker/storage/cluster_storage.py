"""What a cluster keeps across restarts in one directory: topics, records, committed offsets, quotas, configurations.

    metadata.jsonl                     a `Journal`: cluster id, topics, configurations, quotas, committed offsets
    logs/<topic id>/<partition>/*.log  `LogFiles`: record batches as they are
    lock                               held while a broker uses the directory

What is flushed when: a batch, a commit or a change of metadata has been handed to the operating system before the
client hears of it, so the end of the process, `kill -9` included, loses nothing acknowledged. Nothing waits for the
disk itself except `close`, which syncs everything: a power cut can cost what the system had not yet written back, as
with Kafka's own default of `log.flush.interval.messages`. Members of groups are not kept, they join again; transactions
that were open are aborted.
"""

import fcntl
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from uuid import UUID

from kclient_quota.broker.cluster_state import ClusterState, Partition, Topic
from kclient_quota.broker.groups.committed_offsets import CommittedOffset
from kclient_quota.broker.groups.group_service import GroupService
from kclient_quota.broker.storage.journal import Journal, Key
from kclient_quota.broker.storage.log_files import FILE_BYTES, LogFiles
from kclient_quota.broker.transactions.transaction_service import abort_open_transactions
from kclient_quota.errors import ConfigError
from kclient_quota.quota.entity import ClientQuotaEntity

FORMAT = 1
PRODUCER_IDS_PER_RUN = 1_000_000


class Storage:
    """A directory in use by one cluster.

    Args:
        directory: created when absent.
        file_bytes: size beyond which a partition begins a new file.

    Raises:
        ConfigError: another broker uses the directory, or it holds something else.
    """

    def __init__(self, directory: Path, file_bytes: int = FILE_BYTES) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._logs_directory = directory / "logs"
        self._file_bytes = file_bytes
        self._files: dict[tuple[UUID, int], LogFiles] = {}
        self._topics: dict[str, UUID] = {}
        self._lock_fd = _lock(directory / "lock")
        try:
            self._journal = _journal(directory / "metadata.jsonl")
        except ConfigError:
            os.close(self._lock_fd)
            raise

    def cluster_id(self, fresh: str) -> str:
        """The id of the cluster that lives here; `fresh` becomes it in an empty directory."""
        if self._journal.get("cluster_id") is None:
            self._journal.set("cluster_id", value=fresh)
        return str(self._journal.get("cluster_id"))

    # -- reading back

    def restore(self, cluster: ClusterState, groups: GroupService) -> None:
        """Fill a cluster that has no topics yet, and keep whatever changes in it from now on."""
        runs = int(self._journal.get("runs") or 0)
        cluster.reserve_producer_ids(runs * PRODUCER_IDS_PER_RUN)
        self._journal.set("runs", value=runs + 1)
        for key, value in self._journal.items("topic"):
            self._restore_topic(cluster, str(key[1]), value)
        for key, value in self._journal.items("config"):
            for config, setting in value.items():
                cluster.set_config(int(key[1] or 0), str(key[2]), config, setting)
        for key, value in self._journal.items("quota"):
            for quota, limit in value.items():
                cluster.set_quota(_entity(key[1:]), quota, limit)
        for key, value in self._journal.items("offset"):
            self._restore_offset(cluster, groups, key, value)
        groups.offsets.observer = self._keep_offset
        self._remove_orphans(cluster)
        cluster.on_save = self.save
        cluster.save()
        abort_open_transactions(cluster)

    def _restore_topic(self, cluster: ClusterState, name: str, value: dict[str, Any]) -> None:
        known = set(cluster.brokers)
        fallback = sorted(known)
        assignment = {
            index: [replica for replica in part["replicas"] if replica in known] or [fallback[index % len(fallback)]]
            for index, part in enumerate(value["partitions"])
        }
        topic = cluster.create_topic(
            name,
            len(assignment),
            replication_factor=value["replication_factor"],
            assignment=assignment,
            topic_id=UUID(value["id"]),
        )
        for partition, part in zip(topic.partitions, value["partitions"], strict=True):
            partition.leader_epoch = part["leader_epoch"]
            log = partition.log
            base = self._files_of(topic, partition).restore(log.restore)
            if base is not None and log.end_offset < base:
                log.start_offset = log.end_offset = base
            log.delete_before(part["start_offset"])

    def _restore_offset(self, cluster: ClusterState, groups: GroupService, key: Key, value: list[Any]) -> None:
        _, group_id, topic, partition = key
        if topic not in cluster.topics:
            self._journal.set(*key, value=None)
            return
        groups.coordinator.get_or_create(str(group_id))
        groups.commit(str(group_id), str(topic), int(partition or 0), CommittedOffset(*value))

    def _remove_orphans(self, cluster: ClusterState) -> None:
        """Files of topics whose deletion a crash has interrupted."""
        if not self._logs_directory.exists():
            return
        for directory in self._logs_directory.iterdir():
            if UUID(directory.name) not in cluster.topics_by_id:
                shutil.rmtree(directory)

    # -- keeping

    def save(self, cluster: ClusterState) -> None:
        """Keep what has changed in topics, configurations and quotas; to be called before a change is acknowledged."""
        for topic in cluster.topics.values():
            self._keep_topic(topic)
        for name in [name for name, topic_id in self._topics.items() if _is_gone(cluster, name, topic_id)]:
            self._journal.set("topic", name, value=None)
            self._remove_files(self._topics.pop(name))
        self._keep_all("config", {key: dict(values) for key, values in cluster.configs.items()})
        self._keep_all("quota", {_entity_key(entity): dict(values) for entity, values in cluster.quotas.items()})

    def _keep_topic(self, topic: Topic) -> None:
        partitions = [
            {"replicas": p.replicas, "leader_epoch": p.leader_epoch, "start_offset": p.log.start_offset}
            for p in topic.partitions
        ]
        value = {"id": str(topic.topic_id), "replication_factor": topic.replication_factor, "partitions": partitions}
        former = self._topics.get(topic.name)
        if former is not None and former != topic.topic_id:
            self._remove_files(former)
        self._journal.set("topic", topic.name, value=value)
        self._topics[topic.name] = topic.topic_id
        for partition in topic.partitions:
            files = self._files_of(topic, partition)
            if partition.log.on_append is None:
                partition.log.on_append = files.append
            files.delete_before(partition.log.start_offset)

    def _remove_files(self, topic_id: UUID) -> None:
        for key in [key for key in self._files if key[0] == topic_id]:
            self._files.pop(key).close()
        shutil.rmtree(self._logs_directory / topic_id.hex, ignore_errors=True)

    def _keep_all(self, kind: str, values: Mapping[Key, dict[str, Any]]) -> None:
        for key, _ in self._journal.items(kind):
            if key[1:] not in values:
                self._journal.set(*key, value=None)
        for name, value in values.items():
            self._journal.set(kind, *name, value=value or None)

    def _keep_offset(self, group_id: str, topic: str, partition: int, committed: CommittedOffset | None) -> None:
        value = None if committed is None else [committed.offset, committed.leader_epoch, committed.metadata]
        self._journal.set("offset", group_id, topic, partition, value=value)

    def _files_of(self, topic: Topic, partition: Partition) -> LogFiles:
        key = (topic.topic_id, partition.index)
        if key not in self._files:
            directory = self._logs_directory / topic.topic_id.hex / str(partition.index)
            self._files[key] = LogFiles(directory, self._file_bytes)
        return self._files[key]

    # -- the end

    def close(self) -> None:
        """Sync everything and let another broker use the directory."""
        for files in self._files.values():
            files.close()
        self._journal.close()
        os.close(self._lock_fd)


def _journal(path: Path) -> Journal:
    journal = Journal(path)
    if journal.get("format") not in {None, FORMAT}:
        journal.close()
        raise ConfigError(f"{path}: written by another version of the broker; use another directory")
    journal.set("format", value=FORMAT)
    return journal


def _is_gone(cluster: ClusterState, name: str, topic_id: UUID) -> bool:
    topic = cluster.topics.get(name)
    return topic is None or topic.topic_id != topic_id


def _entity_key(entity: ClientQuotaEntity) -> Key:
    return tuple(part for pair in sorted(entity.wire_entries()) for part in pair)


def _entity(key: Key) -> ClientQuotaEntity:
    names = [None if name is None else str(name) for name in key[1::2]]
    return ClientQuotaEntity(dict(zip(map(str, key[::2]), names, strict=True)))


def _lock(path: Path) -> int:
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(fd)
        raise ConfigError(f"{path.parent}: another broker uses this directory; stop it or name another one") from None
    return fd
