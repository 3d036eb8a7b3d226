"""`ClusterClient`: asks a cluster, whichever of its brokers has to be asked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from kclient_telemetry.locks import reentrant_lock

from kclient_quota.cluster.security import CurrentSecurity, parse_bootstrap_servers
from kclient_quota.errors import ClusterError
from kclient_quota.wire.connection import Connection
from kclient_quota.wire.endpoint import DEFAULT_TIMEOUT_MS
from kclient_quota.wire.error_codes import RETRIABLE, ErrorCode, error_name
from kclient_quota.wire.messages import FindCoordinatorRequest, MetadataRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from kclient_quota.clock import Clock
    from kclient_quota.wire.schema import Request

    Address = tuple[str, int]

GROUP, TRANSACTION = 0, 1
_ANY = -1
_RETRY_PAUSE_MS = 100
_ASK_AGAIN = {
    ErrorCode.NOT_CONTROLLER,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
}
_BATCHED_COORDINATORS = 4


class ClusterClient:
    """Connections to the brokers of one cluster, opened when needed; may be shared by threads, which take turns.

    Args:
        conf: a librdkafka configuration; keys that do not concern connections are ignored.
        clock: for deadlines.

    Raises:
        ConfigError: the configuration cannot be used.
    """

    def __init__(self, conf: Mapping[str, Any], clock: Clock) -> None:
        self._bootstrap = parse_bootstrap_servers(conf)
        self._security = CurrentSecurity(conf)
        self._clock = clock
        self._lock = reentrant_lock()
        self._connections: dict[int, Connection] = {}
        self._addresses: dict[int, Address] = {}
        self._controller_id = _ANY

    def ask(self, request: Request, *, timeout_ms: int = DEFAULT_TIMEOUT_MS) -> Any:
        """Ask any broker, the next one if one is down.

        Raises:
            ClusterError: no broker answered in time; the message says what each said.
            WireError: the request cannot be written.
        """
        return self.ask_many([request], timeout_ms=timeout_ms)[0]

    def ask_many(self, requests: Sequence[Request], *, timeout_ms: int = DEFAULT_TIMEOUT_MS) -> list[Any]:
        """Ask any broker several things in one go; the answers in the same order.

        Raises:
            ClusterError: as `ask`.
            WireError: as `ask`.
        """
        end_ms = self._clock.now_ms() + timeout_ms
        with self._lock:
            return self._talk(_ANY, requests, end_ms)

    def ask_broker(self, node_id: int, request: Request, *, timeout_ms: int = DEFAULT_TIMEOUT_MS) -> Any:
        """Ask one broker, such as a partition's leader or the one whose configuration it is.

        Raises:
            ClusterError: there is no such broker, or it did not answer in time.
            WireError: the request cannot be written.
        """
        end_ms = self._clock.now_ms() + timeout_ms
        with self._lock:
            return self._talk(node_id, [request], end_ms)[0]

    def ask_controller(self, request: Request, *, timeout_ms: int = DEFAULT_TIMEOUT_MS) -> Any:
        """Ask the controller, or in KRaft the broker that stands for it; again if it has just moved or gone.

        Raises:
            ClusterError: no controller answered in time.
            WireError: the request cannot be written.
        """

        def locate(end_ms: int) -> int:
            if self._controller_id == _ANY:
                self._refresh(end_ms)
            return self._controller_id

        def forget() -> None:
            self._controller_id = _ANY

        return self._route(request, locate, forget, timeout_ms)

    def ask_coordinator(
        self, request: Request, key: str, *, key_type: int = GROUP, timeout_ms: int = DEFAULT_TIMEOUT_MS
    ) -> Any:
        """Ask the coordinator of a group or transactional id; again if it has just moved or gone.

        Args:
            request: what to ask.
            key: group id or transactional id.
            key_type: `GROUP` or `TRANSACTION`.
            timeout_ms: for everything together.

        Raises:
            ClusterError: no coordinator was found or answered in time.
            WireError: the request cannot be written.
        """
        return self._route(request, lambda end_ms: self._find_coordinator(key, key_type, end_ms), None, timeout_ms)

    def close(self) -> None:
        """Close all connections; the client may be used again."""
        with self._lock:
            for connection in self._connections.values():
                connection.close()
            self._connections.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def _route(
        self, request: Request, locate: Callable[[int], int], forget: Callable[[], None] | None, timeout_ms: int
    ) -> Any:
        """Ask the broker that `locate` names until it answers and does not say that it is the wrong one."""
        end_ms = self._clock.now_ms() + timeout_ms
        with self._lock:
            while True:
                try:
                    node_id = locate(end_ms)
                    self._connected(node_id, self._halfway(end_ms))
                    response = self._talk(node_id, [request], end_ms)[0]
                except ClusterError as error:
                    # it may be gone, and another one have taken its place
                    if error.error_code is not None or self._is_late(end_ms, forget):
                        raise
                else:
                    if getattr(response, "error_code", 0) not in _ASK_AGAIN or self._is_late(end_ms, forget):
                        return response
                self._clock.sleep_ms(_RETRY_PAUSE_MS)

    def _is_late(self, end_ms: int, forget: Callable[[], None] | None) -> bool:
        """Forget whom we asked; whether there is no time left for asking another."""
        if forget:
            forget()
        return self._clock.now_ms() + _RETRY_PAUSE_MS >= end_ms

    def _find_coordinator(self, key: str, key_type: int, end_ms: int) -> int:
        while True:
            request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])
            connection = self._connected(_ANY, end_ms)
            if connection.pick_version(request) < _BATCHED_COORDINATORS:
                request = FindCoordinatorRequest(key_type=key_type, key=key)
            response = self._talk(_ANY, [request], end_ms)[0]
            found = response.coordinators[0] if response.coordinators else response
            if not found.error_code:
                self._addresses[found.node_id] = (found.host, found.port)
                return int(found.node_id)
            out_of_time = self._clock.now_ms() + _RETRY_PAUSE_MS >= end_ms
            if found.error_code not in RETRIABLE or out_of_time:
                raise ClusterError(
                    f"the coordinator of {key!r} was not found: {error_name(found.error_code)}",
                    error_code=found.error_code,
                )
            self._clock.sleep_ms(_RETRY_PAUSE_MS)

    def _talk(self, node_id: int, requests: Sequence[Request], end_ms: int) -> list[Any]:
        """Send and receive; once more on a new connection if an old one turns out to be dead."""
        reused = node_id in self._connections
        connection = self._connected(node_id, end_ms)
        try:
            return connection.send_many(requests, timeout_ms=self._left_ms(end_ms))
        except ClusterError as error:
            if error.error_code is not None:
                raise
            self._connections.pop(node_id, None)
            if not reused or self._left_ms(end_ms) <= 0:
                raise
        reopened = self._connected(node_id, end_ms if node_id == _ANY else self._halfway(end_ms))
        return reopened.send_many(requests, timeout_ms=self._left_ms(end_ms))

    def _connected(self, node_id: int, end_ms: int) -> Connection:
        found = self._connections.get(node_id)
        if found is not None:
            return found
        if node_id == _ANY:
            opened = self._open_any(end_ms)
        else:
            if node_id not in self._addresses:
                self._refresh(end_ms)
            if node_id not in self._addresses:
                raise ClusterError(f"there is no broker {node_id}; the cluster has {sorted(self._addresses)}")
            opened = self._open(self._addresses[node_id], self._left_ms(end_ms))
        self._connections[node_id] = opened
        return opened

    def _open_any(self, end_ms: int) -> Connection:
        """The first broker that lets us in; each may use its share of the time that is left."""
        candidates = list(dict.fromkeys([*self._bootstrap, *self._addresses.values()]))
        failures = []
        for index, address in enumerate(candidates):
            share_ms = self._left_ms(end_ms) // (len(candidates) - index)
            try:
                return self._open(address, share_ms)
            except ClusterError as error:
                if error.error_code is not None:
                    raise  # a broker that answers and refuses speaks for all
                failures.append(str(error))
        raise ClusterError("; ".join(failures))

    def _open(self, address: Address, timeout_ms: int) -> Connection:
        return Connection(self._security.settings(*address), self._clock).open(timeout_ms)

    def _refresh(self, end_ms: int) -> None:
        """Learn the brokers' addresses and the controller."""
        metadata = self._talk(_ANY, [MetadataRequest(topics=[])], end_ms)[0]
        self._addresses = {broker.node_id: (broker.host, broker.port) for broker in metadata.brokers}
        self._controller_id = metadata.controller_id

    def _halfway(self, end_ms: int) -> int:
        """Until when to try a broker that may be gone, so that time is left for another."""
        return end_ms - self._left_ms(end_ms) // 2

    def _left_ms(self, end_ms: int) -> int:
        return max(0, end_ms - self._clock.now_ms())
