"""What may leave, and librdkafka could not send yet: behind unanswered messages of its partition.

An idempotent producer of librdkafka sends no more of a partition while enough of it is on its way. What lingers behind
that has its thread look all the time whether it may be sent now: 80 ms from the broker for a whole processor. So it is
kept here until there is an answer. What librdkafka has of a partition it sends in order, and what is kept of it comes
behind that, and before all that still waits for the quota.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from kclient_quota.clients.producer.sender.lines import PartitionLines
from kclient_quota.pacing.sending.turns import ANY_PARTITION, Partition, Waiting

if TYPE_CHECKING:
    from kclient_quota.clients.producer.core import Sent


class Kept:
    """Of one producer.

    Args:
        lines: what librdkafka has, by partition.
        is_needed: whether librdkafka waits for answers before it sends more: `enable.idempotence`.
    """

    def __init__(self, lines: PartitionLines, *, is_needed: bool) -> None:
        self._lines = lines
        self._is_needed = is_needed
        self._kept: dict[Partition, list[Sent]] = {}

    def __bool__(self) -> bool:
        return bool(self._kept)

    def due(self, sends: Iterable["Sent"], now_ms: int, *, keeps: bool = True) -> list["Sent"]:
        """What is to be handed over now, in order: of what was kept, and of these, which leave now.

        Not `keeps`: all of it, so that callers, who wait for that, may hand over themselves; or since they have, and
        there are answers only when they poll.
        """
        sends = list(sends)
        if not (sends or self._kept):
            return sends
        full = self._lines.full(now_ms) if keeps and self._is_needed else set()
        released = {place for place in self._kept if place not in full}
        found = [sent for place in released for sent in self._kept.pop(place)]
        for sent in sends:
            topic, partition = place = sent.messages[0].topic, sent.partition
            if partition == ANY_PARTITION:  # librdkafka chooses: maybe one that something is kept of
                for other in [each for each in self._kept if each[0] == topic]:
                    found += self._kept.pop(other)
                    released.add(other)
            # None of a partition that has gone this time: if librdkafka refuses that, it waits for the quota again.
            if place in full and place not in released:
                self._kept.setdefault(place, []).append(sent)
            else:
                found.append(sent)
        return found

    def purge(self, now_ms: int) -> list[Waiting]:
        """Forget all; returns it."""
        purged = []
        for sent in [sent for kept in self._kept.values() for sent in kept]:
            raw_bytes = sum(message.raw_bytes for message in sent.messages)
            sent.broker.queue.pace.on_delivered(raw_bytes, now_ms, arrived=False)
            purged += sent.messages
        self._kept.clear()
        return purged
