"""The record files of a cluster's topics, and where each partition's log begins."""

import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from uuid import UUID

from kclient_quota.broker.cluster_state import Partition, Topic
from kclient_quota.broker.log.partition_log import LogStore, PartitionLog
from kclient_quota.broker.storage.disk import AppendedFile, Disk, Later, at_once
from kclient_quota.broker.storage.journal import Journal, Key
from kclient_quota.broker.storage.log_files import LogFiles

_KINDS = ("start", "compacted")
"""What is noted of a log by topic id and partition."""
_LOG = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class PartitionStore:
    """Keeps one partition's log: the `LogStore` that a `PartitionLog` is given."""

    files: LogFiles
    log: PartitionLog
    keep_start: Callable[[int], None]
    keep_compacted: Callable[[int], None]

    def append(self, batch: memoryview, *, begins_segment: bool) -> None:
        """Write a batch."""
        self.files.append(batch, begins_segment=begins_segment)

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
        syncs: whether every append waits for the disk itself.
        later: what is to be done while others go on; at once unless this says when.
    """

    def __init__(
        self, directory: Path, journal: Journal, disk: Disk, *, syncs: bool, later: Later | None = None
    ) -> None:
        self._directory = directory
        self._journal = journal
        self._disk = disk
        self._syncs = syncs
        self._later = later or at_once
        self._stores: dict[UUID, dict[int, PartitionStore]] = {}
        self._noted: dict[UUID, dict[Key, None]] = {}
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
        files = LogFiles(directory, self._disk, syncs=self._syncs, later=self._later)
        store = PartitionStore(
            files,
            log,
            lambda start: self._note(topic_id, ("start", topic_id.hex, index), start or None),
            lambda end: self._note(topic_id, ("compacted", topic_id.hex, index), end),
        )
        self._stores.setdefault(topic_id, {})[index] = store
        log.store = store
        return store

    def _note(self, topic_id: UUID, key: Key, offset: int | None) -> None:
        self._journal.set(*key, value=offset, twice=False)
        self._noted.setdefault(topic_id, {})[key] = None

    def remove(self, topic_id: UUID) -> None:
        """Delete a topic's records, by and by; what is left when the process ends is deleted when the next begins."""
        stores = self._stores.pop(topic_id, {})
        files = [file for store in stores.values() if (file := store.files.let_go()) is not None]
        directory = self._directory / topic_id.hex
        if files or directory.exists():
            self._later(partial(self._remove, files, directory))
        self._journal.forget(self._noted.pop(topic_id, {}))

    def _remove(self, files: list[AppendedFile], directory: Path) -> None:
        for file in files:
            file.discard()
        self._disk.remove_tree(directory)

    def remove_others(self, known: set[UUID], *, is_journal_whole: bool) -> None:
        """Remove records of topics whose deletion was interrupted; none if the journal may have lost a topic."""
        for topic_id in [one for one in self._noted if one not in known] if is_journal_whole else ():
            self._journal.forget(self._noted.pop(topic_id))
        for directory in self._others(known):
            if is_journal_whole:
                self._disk.remove_tree(directory)
            else:
                _LOG.error(
                    "%s: records of a topic that the damaged journal does not name; left where they are", directory
                )

    def _others(self, known: set[UUID]) -> Iterator[Path]:
        if self._directory.exists():
            yield from (path for path in self._directory.iterdir() if UUID(path.name) not in known)

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
