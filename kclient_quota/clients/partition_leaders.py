"""Which broker leads a partition: quotas are each broker's own, and librdkafka does not say whose a record was."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from kclient_quota.clients.limits import ASK_DEADLINE_MS, ASKS_AS, MIN_REFRESH_MS, REFRESH_MS
from kclient_quota.errors import KclientQuotaError
from kclient_quota.pacing.fetching.share_fetch import ANY_BROKER

if TYPE_CHECKING:
    from kclient_quota.cluster.asking import Asking

Partition = tuple[str, int]
NEVER_MS: Final = -(1 << 62)


class PartitionLeaders:
    """Asks the cluster when a partition comes up that it has not heard of, and once a minute.

    Args:
        conf: a librdkafka configuration, with which the cluster is asked; looked at each time.
    """

    def __init__(self, conf: Mapping[str, Any]) -> None:
        self._conf = conf
        self._asking: Asking | None = None
        self._known: dict[Partition, int] = {}
        self._asked_at_ms = NEVER_MS
        self._fresh_until_ms = NEVER_MS

    def by_broker(self, received: Mapping[Partition, int], now_ms: int) -> dict[int, int]:
        """Bytes by broker of what came by topic and partition; of ANY_BROKER where nobody tells who leads it."""
        is_due = now_ms >= self._fresh_until_ms or not received.keys() <= self._known.keys()
        if is_due and now_ms - self._asked_at_ms >= MIN_REFRESH_MS:
            self._ask({topic for topic, _ in {*received, *self._known}}, now_ms)
        found: dict[int, int] = {}
        for place, nbytes in received.items():
            broker = self._known.get(place, ANY_BROKER)
            found[broker] = found.get(broker, 0) + nbytes
        return found

    def doubt(self) -> None:
        """A throttle contradicts what is known: leaders may have moved."""
        self._fresh_until_ms = NEVER_MS

    def _ask(self, topics: set[str], now_ms: int) -> None:
        # its connection, wire format and TLS are loaded by those who ask, not by everybody who imports a client
        from kclient_quota.cluster.asking import asking  # noqa: PLC0415

        self._asked_at_ms = now_ms
        self._fresh_until_ms = now_ms + REFRESH_MS
        try:
            self._asking = asking({**self._conf, "client.id": ASKS_AS})
        except KclientQuotaError:
            return
        found = self._asking.leaders(topics, ASK_DEADLINE_MS)
        self._known.update(found)
        if not found:  # an answer that does not come costs the application a second: not every five
            self._asked_at_ms = now_ms + REFRESH_MS - MIN_REFRESH_MS
