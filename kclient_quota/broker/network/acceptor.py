"""Who is let in on a listener, and when: Kafka's `Acceptor` and the limits of `ConnectionQuotas.inc`."""

from collections import deque
from typing import TYPE_CHECKING, Final

from kclient_telemetry import logger_of

from kclient_quota.broker.cluster_state import BROKER
from kclient_quota.quota.connections import NO_CONNECTION_RATE

if TYPE_CHECKING:
    from kclient_quota.broker.network.connection import Connection
    from kclient_quota.broker.request.node import Node

_LOG = logger_of(__name__)
_RATE_KEY: Final = "max.connection.creation.rate"


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
        self._is_waiting = False

    def arrived(self, connection: "Connection") -> None:
        """A connection has been made; it is admitted, refused or dropped, now or once its turn comes."""
        self._queue.append(connection)
        if not self._is_waiting:
            self._take_up()

    def _take_up(self) -> None:
        node = self._node
        while self._queue:
            now_ms = node.scheduler.now_ms()
            limit = node.cluster.config(BROKER, str(node.info.id), _RATE_KEY)
            rate = NO_CONNECTION_RATE if limit is None else int(limit)
            wait_ms = node.enforcement.connections.waits_ms(self._listener, rate, now_ms)
            if wait_ms:
                self._is_waiting = True
                node.scheduler.call_at(now_ms + wait_ms, self._go_on)
                return
            self._decide(self._queue.popleft())

    def _go_on(self) -> None:
        self._is_waiting = False
        self._decide(self._queue.popleft())
        self._take_up()

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
        elif node.traffic.connections >= node.limits.connections:
            limit = node.limits.connections
            if node.may_complain(address):
                _LOG.warning("broker %s: closed a connection: max.connections is %s", node.info.id, limit)
            connection.abort()
        elif node.traffic.by_address[address] >= node.limits.connections_per_ip:
            limit = node.limits.connections_per_ip
            if node.may_complain(address):
                _LOG.warning("broker %s: closed a connection: max.connections.per.ip is %s", node.info.id, limit)
            connection.abort()
        else:
            connection.admit()
