"""What of a consumer is paused: by the application, or by us for want of room."""

from confluent_kafka import TopicPartition

from kclient_quota.clients.consumer.receiving.held import key_of
from kclient_quota.clients.consumer.receiving.recovering import Recovering, in_turn


class Pausing(Recovering):
    """confluent_kafka's Consumer, whose pauses are the application's whatever else is paused."""

    _kq_is_open = False

    def _kq_resume_ours(self) -> None:
        """Some of what was held is being handed over: there is room again."""
        if not self._kq_paused_by_us:
            return
        mine, self._kq_paused_by_us = self._kq_paused_by_us, []
        mine = [part for part in mine if key_of(part) not in self._kq_paused | self._kq_resting]
        self._kq_pause_source(mine, is_paused=False)

    @in_turn
    def pause(self, partitions: list[TopicPartition]) -> None:
        """Receive nothing of these partitions; what is held of them is handed over after `resume()`."""
        if not self._kq_is_open:
            super().pause(partitions)
        self._kq_pause_source(partitions, is_paused=True)
        self._kq_paused.update(map(key_of, partitions))
        self._kq_held.set_aside(self._kq_paused)
        self._kq_no_more_of(partitions)

    @in_turn
    def resume(self, partitions: list[TopicPartition]) -> None:
        """Receive of them again."""
        if not self._kq_is_open or not _are_partitions(partitions):
            super().resume(partitions)  # which says what is wrong
        named = set(map(key_of, partitions))
        self._kq_paused -= named
        self._kq_held.bring_back(named)
        ours = self._kq_resting | {key_of(part) for part in self._kq_paused_by_us}
        mine = [part for part in partitions if key_of(part) not in ours]
        self._kq_pause_source(mine, is_paused=False)


def _are_partitions(given: object) -> bool:
    return isinstance(given, list) and all(isinstance(part, TopicPartition) for part in given)
