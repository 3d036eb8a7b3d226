"""Who is let in on a listener, and when: Kafka's `Acceptor` and the limits of `ConnectionQuotas.inc`."""

from collections import deque
from typing import TYPE_CHECKING, Final

from kclient_telemetry import logger_of

from kclient_quota.broker.request.node import MAX_CONNECTIONS, PER_ADDRESS

if TYPE_CHECKING:
    from kclient_quota.broker.network.connection import Connection
    from kclient_quota.broker.request.node import Node

_LOG = logger_of(__name__)
_RATE: Final = "max.connection.creation.rate"


class Acceptor:
    """Takes connections of one listener up one after the other.

    Args:
        node: the broker.
        listener: name of the listener.
    """

    def __init__(self, node: "Node", listener: str) -> None:
        self._node = node
        self._listener = listener
        self._queue: deque[Connection] = deque()
        self._is_counted = False
        self._is_held = False
        self._was_full = False
        node.on_room.append(self._take_up)

    def arrived(self, connection: "Connection") -> None:
        """A connection has been made; it is admitted, refused or dropped, now or once its turn comes."""
        self._queue.append(connection)
        if len(self._queue) == 1:
            self._take_up()

    def _take_up(self) -> None:
        while self._queue and not self._must_wait():
            self._is_counted = False
            self._decide(self._queue.popleft())

    def _must_wait(self) -> bool:
        """Whether the first one waits for its turn, and then for room; those behind it wait for it."""
        if not self._is_counted:
            self._is_counted = True
            self._hold()
        return self._is_held or self._is_full()

    def _hold(self) -> None:
        node, now_ms = self._node, self._node.scheduler.now_ms()
        wait_ms = node.enforcement.connections.waits_ms(self._listener, node.connection_limit(_RATE), now_ms)
        if wait_ms:
            self._is_held = True
            node.scheduler.call_at(now_ms + wait_ms, self._go_on)

    def _go_on(self) -> None:
        self._is_held = False
        self._take_up()

    def _is_full(self) -> bool:
        node, first, limit = self._node, self._queue[0], self._node.connection_limit(MAX_CONNECTIONS)
        is_full = node.traffic.connections >= limit and node.info.is_up and not first.is_gone
        if is_full and not self._was_full and node.may_complain(first.state.client_address):
            _LOG.warning("broker %s: new connections wait: max.connections is %s", node.info.id, limit)
        self._was_full = is_full
        return is_full

    def _decide(self, connection: "Connection") -> None:
        node, address = self._node, connection.state.client_address
        now_ms = node.scheduler.now_ms()
        refused_ms = node.enforcement.connections.refused_ms(self._listener, address, now_ms)
        if not node.info.is_up or connection.is_gone:
            # accepted just before its broker was stopped, or tired of waiting
            connection.abort()
        elif refused_ms:
            _LOG.debug("broker %s: %s has to wait %s ms for a connection", node.info.id, address, refused_ms)
            connection.refuse(now_ms + refused_ms)
        elif node.traffic.by_address[address] >= (limit := node.connection_limit(PER_ADDRESS)):
            if node.may_complain(address):
                _LOG.warning("broker %s: closed a connection: max.connections.per.ip is %s", node.info.id, limit)
            connection.abort()
        else:
            connection.admit()
