"""The record files of a cluster's topics, and where each partition's log begins."""

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from uuid import UUID

from kclient_telemetry import logger_of

from kclient_quota.broker.cluster_state import Partition, Topic
from kclient_quota.broker.log.compacted import WAITING
from kclient_quota.broker.log.partition_log import LogStore, PartitionLog, Reach
from kclient_quota.broker.storage.disk import AppendedFile, Disk, Later, at_once
from kclient_quota.broker.storage.group_commit import GroupCommit
from kclient_quota.broker.storage.journal import Journal, Key
from kclient_quota.broker.storage.log_files import LogFiles

_KINDS = ("start", "compacted")
"""What is noted of a log by topic id and partition."""
_DELETED = "deleted"
"""What is noted of a topic, by its id, while there are records of it that are to be removed."""
_LOG = logger_of(__name__)


@dataclass(slots=True, eq=False)
class PartitionStore:
    """Keeps one partition's log: the `LogStore` that a `PartitionLog` is given."""

    files: LogFiles
    log: PartitionLog
    keep_start: Callable[[int], None]
    keep_compacted: Callable[[int], Iterator[int]]
    commit: GroupCommit | None = None
    reach: Reach | None = None

    def append(self, batch: memoryview, *, begins_segment: bool) -> None:
        """Write a batch; readers see it once the disk itself has it, where that is wanted."""
        self.files.append(batch, begins_segment=begins_segment)
        if self.commit is not None:
            self.log.hold()
            self.commit.wrote(self)

    def begin_sync(self) -> None:
        """What is there now is what is synced."""
        self.reach = self.log.reach
        self.files.begin_sync()

    def sync(self) -> None:
        """Wait for the disk."""
        self.files.sync()

    def end_sync(self, error: OSError | None) -> None:
        """Readers see what the disk has."""
        self.files.end_sync(error)
        if error is None and self.reach is not None:
            self.log.show(self.reach)

    def start_moved(self) -> None:
        """Free what lies before the log's start, then note where it is; a full disk must not be in the way of that."""
        start = self.log.start_offset
        try:
            self.files.delete_before(start)
            self.keep_start(start)
        except OSError as error:
            # after a restart the log begins where its oldest file does, at most this far back
            _LOG.warning("the start of a log, offset %s, could not be kept: %s", start, error)

    def replace(self, batches: Iterator[memoryview], end_offset: int, is_current: Callable[[], bool]) -> Iterator[int]:
        """Write what compaction has left of the log's first files in their place."""
        if self.log.damaged:
            return  # where a damaged batch lies is known by its file
        try:
            yield from self.files.replace(batches, end_offset, is_current, self.keep_compacted)
        except OSError as error:
            # the files hold more than is needed, and nothing less
            _LOG.warning("what was compacted up to offset %s could not be written: %s", end_offset, error)


@dataclass(slots=True, eq=False)
class Unwritten:
    """The `LogStore` of a log that nothing was written to yet: very many of them cost next to nothing."""

    owner: "TopicFiles"
    topic_id: UUID
    index: int
    log: PartitionLog

    def append(self, batch: memoryview, *, begins_segment: bool) -> None:
        """Write the first batch."""
        self.owner.open(self.topic_id, self.index, self.log).append(batch, begins_segment=begins_segment)

    def start_moved(self) -> None:
        """There is nothing before it."""

    def replace(self, batches: Iterator[memoryview], end_offset: int, is_current: Callable[[], bool]) -> Iterator[int]:  # noqa: ARG002
        """There is nothing to be replaced."""
        yield from ()


class TopicFiles:
    """Where topics keep their records.

    Args:
        directory: holds a directory per topic id, and in it one per partition.
        journal: keeps where logs begin.
        disk: where it is.
        commit: sees to it that the disk itself has what is written, if somebody waits for that.
        later: what is to be done while others go on; at once unless this says when.
        removed: the same for removals, which nobody waits for.
    """

    def __init__(
        self,
        directory: Path,
        journal: Journal,
        disk: Disk,
        commit: GroupCommit | None = None,
        later: Later = at_once,
        removed: Later = at_once,
    ) -> None:
        self._directory = directory
        self._journal = journal
        self._disk = disk
        self._commit = commit
        self._later = later
        self._removed = removed
        self._stores: dict[UUID, dict[int, PartitionStore]] = {}
        self._noted: dict[UUID, dict[Key, None]] = {}
        self._marked: deque[UUID] = deque()
        for kind in _KINDS:
            for key, _ in journal.items(kind):
                self._noted.setdefault(UUID(hex=str(key[1])), {})[key] = None

    def new_store(self, topic_id: UUID, index: int, log: PartitionLog) -> LogStore:
        """Where a log is to be kept that has nothing yet."""
        return Unwritten(self, topic_id, index, log)

    def attach(self, topic: Topic) -> None:
        """Keep what is written to a topic's partitions from now on."""
        for partition in topic.partitions:
            if partition.log.store is None:
                partition.log.store = self.new_store(topic.topic_id, partition.index, partition.log)

    def restore(self, topic: Topic, start_offsets: list[int]) -> None:
        """Fill a topic's empty logs."""
        directory = self._directory / topic.topic_id.hex
        written = {path.name for path in directory.iterdir()} if directory.exists() else set()
        for partition, former_start in zip(topic.partitions, start_offsets, strict=True):
            if str(partition.index) in written:
                self._restore(topic, partition, former_start)
        self.attach(topic)

    def _restore(self, topic: Topic, partition: Partition, former_start: int) -> None:
        log = partition.log
        store = self.open(topic.topic_id, partition.index, log)
        log.store = None
        compacted = self._journal.get("compacted", topic.topic_id.hex, partition.index) or 0
        store.files.restore(log, compacted)
        log.compacted.end_offset = min(compacted, log.end_offset)
        start = self._journal.get("start", topic.topic_id.hex, partition.index)
        log.store = store
        log.delete_before(former_start if start is None else start)

    def open(self, topic_id: UUID, index: int, log: PartitionLog) -> PartitionStore:
        """Let a log be kept in files."""
        directory = self._directory / topic_id.hex / str(index)
        files = LogFiles(directory, self._disk, syncs=self._commit is not None, later=self._later)
        store = PartitionStore(
            files,
            log,
            lambda start: self._note(topic_id, ("start", topic_id.hex, index), start or None),
            lambda end: self._note_compacted(topic_id, index, end),
            self._commit,
        )
        self._stores.setdefault(topic_id, {})[index] = store
        log.store = store
        return store

    def _note(self, topic_id: UUID, key: Key, offset: int | None) -> None:
        self._journal.set(*key, value=offset, twice=False)
        self._noted.setdefault(topic_id, {})[key] = None

    def _note_compacted(self, topic_id: UUID, index: int, end: int) -> Iterator[int]:
        """Where offsets may be missing is known before they are."""
        self._note(topic_id, ("compacted", topic_id.hex, index), end)
        if self._commit is None:
            return
        on_disk = self._commit.on_disk()
        while not on_disk.is_resolved:
            yield WAITING
        if on_disk.value is not None:
            raise on_disk.value

    def remove(self, topic_id: UUID, *, at_once: bool = False) -> None:
        """Delete a topic's records, by and by; what is left when the process ends is deleted when the next begins.

        Args:
            topic_id: of the topic.
            at_once: also where the disk itself does not know yet that the topic is gone.
        """
        stores = self._stores.pop(topic_id, {})
        files = [file for store in stores.values() for file in store.files.let_go()]
        directory = self._directory / topic_id.hex
        if files:
            self._later(partial(_discard, files))
        if files or directory.exists():
            self._remove_kept(directory, is_known=at_once or self._commit is None)
        self._journal.forget(self._noted.pop(topic_id, {}))
        self._forget_removed()

    def _remove_kept(self, directory: Path, *, is_known: bool) -> None:
        """Remove what the journal no longer names, once the disk itself knows that it does not."""
        remove = partial(self._removed, partial(self._disk.remove_tree, directory))
        if is_known or self._commit is None:
            remove()
            return
        on_disk = self._commit.on_disk()
        # else the topic may be back after a power cut; what is left here goes when the next process begins
        on_disk.on_resolved(lambda: remove() if on_disk.value is None else None)

    def mark_deleted(self, topic_id: UUID) -> None:
        """Keep that a topic is to be deleted, before its name goes: without that its records are never removed.

        Raises:
            OSError: it could not be kept.
        """
        if (self._directory / topic_id.hex).exists():
            self._journal.set(_DELETED, topic_id.hex, value=True, twice=False)
            self._marked.append(topic_id)

    def _forget_removed(self) -> None:
        """Nobody need know any more that those were deleted whose records are gone, which goes by turns."""
        while self._marked and not (self._directory / self._marked[0].hex).exists():
            self._journal.forget([(_DELETED, self._marked.popleft().hex)])

    def remove_deleted(self, known: set[UUID], *, is_journal_whole: bool) -> None:
        """Remove records of topics whose deletion was interrupted.

        What the journal does not name may have been lost from it (a backup of yesterday, a disk that was mended): it
        stays, unless a whole journal says that it was deleted.
        """
        deleted = {UUID(hex=str(key[1])) for key, _ in self._journal.items(_DELETED)}
        for topic_id in deleted & known:
            self._journal.set(_DELETED, topic_id.hex, value=None, twice=False)
        left: set[UUID] = set()
        for topic_id, directory in topic_directories(self._directory):
            if topic_id in known:
                continue
            if topic_id in deleted and is_journal_whole:
                self._disk.remove_tree(directory)
                continue
            left.add(topic_id)
            _LOG.error("%s: records of a topic that the journal does not name; left where they are", directory)
        self._marked.extend(deleted - known)
        self._forget_removed()
        for topic_id in [one for one in self._noted if one not in known | left]:
            self._journal.forget(self._noted.pop(topic_id))

    def dirty(self) -> Iterator[AppendedFile]:
        """Files with something that has not been synced."""
        for stores in self._stores.values():
            yield from (file for store in stores.values() if (file := store.files.dirty_file) is not None)

    def close(self) -> None:
        """Sync and let go of all files, also where one of them cannot be synced."""
        with ExitStack() as rest:
            for stores in self._stores.values():
                for store in stores.values():
                    rest.callback(store.files.close)


def topic_directories(directory: Path) -> Iterator[tuple[UUID, Path]]:
    """Ids of topics that have records in `directory`, and where; what is no topic's is nothing of ours."""
    for path in directory.iterdir() if directory.exists() else ():
        with suppress(ValueError):
            yield UUID(hex=path.name), path


def _discard(files: list[AppendedFile]) -> None:
    for file in files:
        file.discard()
