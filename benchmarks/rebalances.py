"""How often a group was lost in between, counted the same way for every client: by its own rebalance listener."""

from collections.abc import Callable, Collection
from typing import Any


class Rebalances:
    """Counts revocations of partitions; whoever closes a consumer reads `count` before that."""

    def __init__(self) -> None:
        self.count = 0

    def revoked(self, partitions: Collection[Any]) -> None:
        """Partitions went; none go when a group begins."""
        self.count += bool(partitions)

    def confluent(self) -> Callable[[Any, Collection[Any]], None]:
        """For `subscribe(on_revoke=...)`; called for lost partitions, too."""
        return lambda _, partitions: self.revoked(partitions)

    def kafka_python(self) -> Any:
        """A listener for kafka-python's `subscribe`."""
        from kafka import ConsumerRebalanceListener  # noqa: PLC0415 - only in its own process

        counted = self

        class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
            def on_partitions_assigned(self, assigned: Any) -> None:
                """Begins again."""

            def on_partitions_revoked(self, revoked: Any) -> None:
                counted.revoked(revoked)

            def on_partitions_lost(self, lost: Any) -> None:
                counted.revoked(lost)

        return Listener()

    def aiokafka(self) -> Any:
        """A listener for aiokafka's `subscribe`."""
        from aiokafka import ConsumerRebalanceListener  # noqa: PLC0415 - only in its own process

        counted = self

        class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
            def on_partitions_assigned(self, assigned: Any) -> None:
                """Begins again."""

            def on_partitions_revoked(self, revoked: Any) -> None:
                counted.revoked(revoked)

        return Listener()
