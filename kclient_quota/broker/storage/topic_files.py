"""The record files of a cluster's topics, and where each partition's log begins."""

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from kclient_quota.broker.cluster_state import Partition, Topic
from kclient_quota.broker.log.partition_log import PartitionLog
from kclient_quota.broker.storage.disk import Disk
from kclient_quota.broker.storage.journal import Journal
from kclient_quota.broker.storage.log_files import LogFiles

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


class TopicFiles:
    """Where topics keep their records.

    Args:
        directory: holds a directory per topic id, and in it one per partition.
        journal: keeps where logs begin.
        disk: where it is.
        syncs: whether every append waits for the disk itself.
    """

    def __init__(self, directory: Path, journal: Journal, disk: Disk, *, syncs: bool) -> None:
        self._directory = directory
        self._journal = journal
        self._disk = disk
        self._syncs = syncs
        self._stores: dict[UUID, dict[int, PartitionStore]] = {}

    def attach(self, topic: Topic) -> None:
        """Keep what is written to a topic's partitions from now on."""
        stores = self._stores.setdefault(topic.topic_id, {})
        for partition in topic.partitions[len(stores) :]:
            partition.log.store = self._store(topic, partition)

    def restore(self, topic: Topic, start_offsets: list[int]) -> None:
        """Fill a topic's empty logs."""
        for partition, former_start in zip(topic.partitions, start_offsets, strict=True):
            store = self._store(topic, partition)
            compacted = self._journal.get("compacted", topic.topic_id.hex, partition.index) or 0
            store.files.restore(partition.log, compacted)
            partition.log.compacted.end_offset = min(compacted, partition.log.end_offset)
            start = self._journal.get("start", topic.topic_id.hex, partition.index)
            partition.log.store = store
            partition.log.delete_before(former_start if start is None else start)

    def _store(self, topic: Topic, partition: Partition) -> PartitionStore:
        files = LogFiles(self._directory / topic.topic_id.hex / str(partition.index), self._disk, syncs=self._syncs)
        place = (topic.topic_id.hex, partition.index)
        store = PartitionStore(
            files,
            partition.log,
            lambda start: self._journal.set("start", *place, value=start or None, twice=False),
            lambda end: self._journal.set("compacted", *place, value=end, twice=False),
        )
        self._stores.setdefault(topic.topic_id, {})[partition.index] = store
        return store

    def remove(self, topic_id: UUID) -> None:
        """Delete a topic's records."""
        for store in self._stores.pop(topic_id, {}).values():
            store.files.close()
        self._disk.remove_tree(self._directory / topic_id.hex)
        for kind in ("start", "compacted"):
            for key, _ in self._journal.items(kind, topic_id.hex):
                self._journal.set(*key, value=None, twice=False)

    def remove_others(self, known: set[UUID], *, is_journal_whole: bool) -> None:
        """Remove records of topics whose deletion was interrupted; none if the journal may have lost a topic."""
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

    def dirty(self) -> Iterator[LogFiles]:
        """Files with something that has not been synced."""
        for stores in self._stores.values():
            yield from (store.files for store in stores.values() if store.files.is_dirty)

    def close(self) -> None:
        """Sync and let go of all files."""
        for stores in self._stores.values():
            for store in stores.values():
                store.files.close()
