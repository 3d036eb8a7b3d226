"""What the sender needs of the producer that it sends for."""

from typing import Any, Protocol

from kclient_quota.clients.producer.outbox import Handed


class Client(Protocol):
    """A producer, as far as librdkafka's part of it goes; see `kclient_quota.clients.producer.caller.waiting`."""

    def with_librdkafka(self) -> int: ...  # noqa: D102 - there, as are those that follow
    def serve_librdkafka(self, timeout_s: float, /) -> int: ...  # noqa: D102
    def flush_librdkafka(self, timeout_s: float, /) -> int: ...  # noqa: D102
    def ask_librdkafka(self, topic: str | None, timeout_s: float, /) -> Any: ...  # noqa: D102
    def hand_to_librdkafka(self, topic: str, partition: int, handed: Handed, /) -> None: ...  # noqa: D102
    def begun_with_librdkafka(self) -> None: ...  # noqa: D102
    def hasten_librdkafka(self, within_ms: float, /) -> None: ...  # noqa: D102
