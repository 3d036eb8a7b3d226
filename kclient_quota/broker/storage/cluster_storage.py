"""What a cluster keeps across restarts in one directory: topics, records, committed offsets, quotas, configurations.

    metadata.jsonl                     a `Journal`: cluster id, topics, configurations, quotas, groups, committed
                                       offsets, share groups' states, transactions, what they are about to commit
    logs/<topic id>/<partition>/*.log  `LogFiles`: record batches, each behind a frame
    lock                               held while a broker uses the directory

What is flushed when: a batch, a commit or a change of metadata has been handed to the operating system before the
client hears of it, so the end of the process, `kill -9` included, loses nothing acknowledged. When the disk itself has
it is `Fsync`'s to say. Members of groups are not kept, they join again; what a share group's member had acquired is
anybody's; transactions that were open are open still.

What cannot be written (a full disk) is not acknowledged: records are refused with KAFKA_STORAGE_ERROR, a change of
metadata is undone in memory.
"""

import fcntl
import os
from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

from kclient_telemetry import logger_of

from kclient_quota.broker.cluster_state import ClusterState, Topic
from kclient_quota.broker.groups.group_service import GroupService
from kclient_quota.broker.quota_key import Change
from kclient_quota.broker.shares.share_service import ShareService
from kclient_quota.broker.storage.disk import AppendedFile, Disk, Later, missing_above
from kclient_quota.broker.storage.fsync import Everything, Fsync
from kclient_quota.broker.storage.group_commit import FromThread, GroupCommit
from kclient_quota.broker.storage.journal import Journal
from kclient_quota.broker.storage.kept import KINDS
from kclient_quota.broker.storage.kept_groups import KeptGroups
from kclient_quota.broker.storage.topic_files import TopicFiles, topic_directories
from kclient_quota.broker.storage.write_back import WriteBack
from kclient_quota.broker.transactions.transaction_service import TransactionService
from kclient_quota.errors import ConfigError

FORMAT = 4
_READABLE_FORMATS = (None, 1, 2, 3, FORMAT)
PRODUCER_IDS_PER_RUN = 1_000_000
_LOG = logger_of(__name__)


class ClusterStorage:
    """A directory in use by one cluster.

    Args:
        directory: created when absent.
        fsync: when the disk itself must have what was acknowledged.
        disk: the file system.

    Raises:
        ConfigError: another broker uses the directory, it holds something else, or it cannot be written.
    """

    def __init__(self, directory: Path, fsync: Fsync | None = None, disk: Disk | None = None) -> None:
        self._fsync = fsync or Fsync()
        disk = disk or Disk()
        try:
            _make(directory, disk if self._fsync.is_always else None)
            self._lock_fd = _lock(directory / "lock")
        except OSError as error:
            raise ConfigError(f"data_dir {directory}: {error}; name a directory that can be written") from error
        try:
            # here rather than by the first topic with records: that may be deleted before the disk has the name
            _make(directory / "logs", disk if self._fsync.is_always else None)
            self._write_back, self._removals = WriteBack(), WriteBack()
            self._commit = GroupCommit(self._write_back.later) if self._fsync.is_always else None
            self._journal = _journal(directory, disk, self._commit, self._write_back.later)
        except OSError as error:
            os.close(self._lock_fd)
            raise ConfigError(f"data_dir {directory}: {error}; make room on the disk, or name another one") from error
        except BaseException:
            os.close(self._lock_fd)
            raise
        self._files = TopicFiles(
            directory / "logs", self._journal, disk, self._commit, self._write_back.later, self._removals.later
        )
        self._disk = disk
        self._is_syncing = False
        self._topics: dict[str, UUID] = {}
        self._unsaved: dict[Change, None] = {}
        self._groups: KeptGroups
        self._transactions: TransactionService

    def cluster_id(self, fresh: str) -> str:
        """The id of the cluster that lives here; `fresh` becomes it in an empty directory."""
        if self._journal.get("cluster_id") is None:
            self._journal.set("cluster_id", value=fresh)
            # Before there are records: beside some, a journal without it is taken for one that was lost.
            self._journal.sync_now()
        return str(self._journal.get("cluster_id"))

    # -- reading back

    def restore(
        self, cluster: ClusterState, groups: GroupService, shares: ShareService, transactions: TransactionService
    ) -> None:
        """Fill a cluster that has no topics yet, and keep whatever changes in it from now on."""
        runs = int(self._journal.get("runs") or 0)
        cluster.reserve_producer_ids(runs * PRODUCER_IDS_PER_RUN)
        self._journal.set("runs", value=runs + 1)
        for key, value in self._journal.items("topic"):
            self._restore_topic(cluster, str(key[1]), value)
        for kind, kept in KINDS.items():
            for key, value in self._journal.items(kind):
                kept.write(cluster, key[1:], value)
        self._groups = KeptGroups(self._journal, cluster, groups, shares, self._topics)
        self._groups.restore()
        self._transactions = transactions
        for key, value in self._journal.items("transaction"):
            transactions.restore(str(key[1]), value)
        self._files.remove_deleted(set(cluster.topics_by_id), is_journal_whole=not self._journal.damaged_lines)
        cluster.on_save = self.save
        cluster.new_store = self._files.new_store
        cluster.save()
        self._disk.outage.is_told = True

    def _restore_topic(self, cluster: ClusterState, name: str, value: dict[str, Any]) -> None:
        known = set(cluster.brokers)
        fallback = sorted(known)
        parts = _parts(value)
        assignment = {
            index: [replica for replica in replicas if replica in known] or [fallback[index % len(fallback)]]
            for index, (replicas, *_) in enumerate(parts)
        }
        topic = cluster.create_topic(
            name,
            len(assignment),
            replication_factor=value["replication_factor"],
            assignment=assignment,
            topic_id=UUID(value["id"]),
        )
        for partition, (_, leader_epoch, _) in zip(topic.partitions, parts, strict=True):
            partition.leader_epoch = leader_epoch
        self._files.restore(topic, [start_offset for *_, start_offset in parts])
        self._topics[name] = topic.topic_id

    # -- keeping

    def save(self, cluster: ClusterState, changes: Mapping[Change, None]) -> None:
        """Keep what has changed in topics, configurations and quotas; to be called before a change is acknowledged.

        Raises:
            OSError: it could not be kept; the cluster is again as it was, but for topics that are gone already.
        """
        former = {change: self._journal.get(*change) for change in changes}
        wanted = {**self._unsaved, **changes}
        try:
            for change in wanted:
                self._keep(cluster, change)
        except OSError:
            for change, value in former.items():
                self._undo(cluster, change, value)
            cluster.changes.clear()
            # written next time, so that the journal says what memory says
            self._unsaved = wanted
            raise
        self._unsaved = {}

    def _keep(self, cluster: ClusterState, change: Change) -> None:
        kind, *name = change
        if kind == "topic":
            self._keep_topic(cluster, str(name[0]))
        elif kind == "share":
            self._groups.keep_share(change)
        elif kind == "transaction":
            self._journal.set(*change, value=self._transactions.state(str(name[0])))
        else:
            self._journal.set(*change, value=KINDS[str(kind)].read(cluster, tuple(name)))

    def _undo(self, cluster: ClusterState, change: Change, value: Any) -> None:
        kind, *name = change
        if kind == "share":
            self._groups.undo_share(change, value)
            return
        if kind == "transaction":
            self._transactions.restore(str(name[0]), value)
            return
        if kind != "topic":
            KINDS[str(kind)].write(cluster, tuple(name), value)
            return
        topic = cluster.topics.get(str(name[0]))
        if topic is None:
            return
        if value is None or value["id"] != str(topic.topic_id):
            cluster.delete_topic(topic.name)
            # the journal has never named it: nobody would know that it may go
            self._files.remove(topic.topic_id, at_once=True)
        else:
            for partition in topic.partitions[len(value["partitions"]) :]:
                partition.log.close()
            del topic.partitions[len(value["partitions"]) :]
            cluster.changed("topic", topic.name)

    def _keep_topic(self, cluster: ClusterState, name: str) -> None:
        topic, former = cluster.topics.get(name), self._topics.get(name)
        if topic is None:
            self._forget_topic(name, former)
            return
        replaced = None if former == topic.topic_id else former
        if replaced is not None:
            self._files.mark_deleted(replaced)
        self._journal.set("topic", name, value=_topic_value(topic))
        self._topics[name] = topic.topic_id
        if replaced is not None:
            self._files.remove(replaced)
        self._files.attach(topic)

    def _forget_topic(self, name: str, topic_id: UUID | None) -> None:
        try:
            if topic_id is not None:
                self._files.mark_deleted(topic_id)
            self._journal.set("topic", name, value=None)
        except OSError:
            if topic_id is None:
                raise
            # deleting a topic is how room is made on a full disk: its records go first
            self._files.remove(topic_id, at_once=True)
            self.wait()
            self._journal.set("topic", name, value=None)
        if topic_id is not None:
            self._files.remove(topic_id)
            del self._topics[name]

    # -- the disk itself

    def begin_syncs(self, cluster: ClusterState, scheduler: FromThread) -> None:
        """Sync as it is wanted from now on: before answers, from time to time, or not at all."""
        if self._commit is not None:
            cluster.on_disk = self._commit.on_disk
            # of what a former process wrote nobody knows whether the disk has it
            self._commit.wrote(Everything(self._disk))
            self._commit.attach(scheduler)
        self._sync_every(scheduler)

    def _sync_every(self, scheduler: FromThread) -> None:
        """Nobody waits for it, and a slow disk is not asked twice."""
        if self._fsync.every_ms:
            scheduler.call_at(scheduler.now_ms() + self._fsync.every_ms, lambda: self._sync_now(scheduler))

    def _sync_now(self, scheduler: FromThread) -> None:
        if not self._is_syncing:
            self._is_syncing = True
            self._write_back.later(partial(self._sync, list(self._files.dirty()), self._journal.file))
        self._sync_every(scheduler)

    def _sync(self, files: list[AppendedFile], journal: AppendedFile) -> None:
        """One that cannot be synced keeps no other from it; the journal's file is only let go of behind this."""
        for sync in (*(file.sync_by_name for file in files), journal.sync):
            try:
                sync()
            except OSError as error:
                _LOG.error("data could not be synced: %s", error)
        self._is_syncing = False

    def wait(self) -> None:
        """Until the disk has done what it was asked to do."""
        self.wait_for_syncs()
        self._removals.wait()

    def wait_for_syncs(self) -> None:
        """Until the disk has what it was asked to sync; what is deleted may be there still."""
        self._write_back.wait()

    def close(self) -> None:
        """Sync everything and let another broker use the directory.

        Raises:
            OSError: a file could not be synced; all the others are, and everything is let go of.
        """
        self._write_back.close()
        self._removals.close()
        with ExitStack() as rest:
            rest.callback(_unlock, self._lock_fd)
            rest.callback(self._journal.close)
            rest.callback(self._files.close)


def no_room(error: OSError) -> ConfigError:
    """What whoever starts a broker is told when its directory does not take what has to be kept first."""
    return ConfigError(f"data_dir: {error}; make room on the disk, or name another directory")


def _topic_value(topic: Topic) -> dict[str, Any]:
    """Very many partitions are of a few kinds: replicas and leader epochs."""
    kinds: dict[tuple[tuple[int, ...], int], int] = {}
    numbers = [kinds.setdefault((tuple(one.replicas), one.leader_epoch), len(kinds)) for one in topic.partitions]
    return {
        "id": str(topic.topic_id),
        "replication_factor": topic.replication_factor,
        "kinds": [[list(replicas), leader_epoch] for replicas, leader_epoch in kinds],
        "partitions": numbers,
    }


def _parts(value: dict[str, Any]) -> list[tuple[list[int], int, int]]:
    """Replicas, leader epoch and first offset of each partition; formats before 3 say them one by one."""
    if "kinds" in value:
        return [(*value["kinds"][number], 0) for number in value["partitions"]]
    return [(part["replicas"], part["leader_epoch"], part.get("start_offset", 0)) for part in value["partitions"]]


def _make(directory: Path, disk: Disk | None) -> None:
    """Make a directory; with a disk that has its name before this returns."""
    changed = missing_above(directory)
    directory.mkdir(parents=True, exist_ok=True)
    if disk is not None:
        for path in changed:
            disk.sync_directory(path)


def _journal(directory: Path, disk: Disk, commit: GroupCommit | None, later: Later) -> Journal:
    path = directory / "metadata.jsonl"
    journal = Journal(path, disk, commit=commit, later=later)
    if journal.get("cluster_id") is None and not any(journal.items("topic")):
        topics = sum(1 for _ in topic_directories(directory / "logs"))
        if topics:
            journal.close()
            # to begin anew here would be to lose them: their names are in no other place
            raise ConfigError(
                f"data_dir {directory}: metadata.jsonl is missing or not whole, but logs/ has records of topics "
                f"({topics}); put metadata.jsonl back from a backup, or name another directory"
            )
    if journal.get("format") not in _READABLE_FORMATS:
        journal.close()
        raise ConfigError(f"{path}: written by another version of the broker; use another directory")
    try:
        journal.set("format", value=FORMAT)
    except OSError:
        journal.close()
        raise
    return journal


def _lock(path: Path) -> int:
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(fd)
        if not isinstance(error, BlockingIOError):  # a file system without locks
            raise
        raise ConfigError(f"{path.parent}: another broker uses this directory; stop it or name another one") from None
    return fd


def _unlock(fd: int) -> None:
    fcntl.flock(fd, fcntl.LOCK_UN)  # a forked child has the file open, too, and with that the lock
    os.close(fd)
