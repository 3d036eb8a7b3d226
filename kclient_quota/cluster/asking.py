"""One questioner for all clients of a process that ask the same cluster as the same principal: one connection, in turn.

Whoever asks what another one is just about to ask takes that answer. Clients that look again now and then also take
what was said a little while ago: so a process with a hundred clients asks as often as one with a few.
"""

import os
import threading
import weakref
from collections.abc import Hashable, Iterable, Mapping
from typing import Any, Final

from kclient_quota.clock import SYSTEM_CLOCK, Clock
from kclient_quota.cluster.brokers import describe_cluster
from kclient_quota.cluster.client import ClusterClient
from kclient_quota.cluster.late_lock import LateLock
from kclient_quota.cluster.limits import EffectiveLimits, ask_limit

FORGET_MS: Final = 120_000
"""What was said so long ago nobody wants to know."""
REST_MS: Final = 1_000
"""A connection is closed when nobody has asked anything for so long: brokers count them (`max.connections`,
`max.connections.per.ip`, what a vendor sells), and the next question is mostly a minute away. Until then it serves all
clients that a process makes when it starts."""
_ADDRESSES: Final = "bootstrap.", "metadata.broker.list", "broker.address.family"
_CONNECTING: Final = (*_ADDRESSES, "security.", "sasl.", "ssl.", "oauth", "enable.ssl")


class Asking:
    """Asks one cluster as one principal, over one connection while there is something to ask.

    Args:
        conf: a librdkafka configuration of one of the clients.
        clock: for deadlines.
    """

    def __init__(self, conf: Mapping[str, Any], clock: Clock = SYSTEM_CLOCK) -> None:
        self._client = ClusterClient(conf, clock)
        self._clock = clock
        self._turn = threading.Lock()
        self._said: dict[tuple[str | None, str], tuple[int, EffectiveLimits]] = {}
        self._asked_ms = clock.now_ms()
        weakref.finalize(self, self._client.close).atexit = False

    def limits(self, user: str | None, client_id: str, deadline_ms: int, *, fresh_ms: int = 0) -> EffectiveLimits:
        """Which quota applies; never raises.

        Args:
            user: the principal's name, None for one that does not log in.
            client_id: whose quota.
            deadline_ms: milliseconds that all of it may take, waiting for one's turn included.
            fresh_ms: how long before this call the question may have been asked.
        """
        called_ms = self._clock.now_ms()
        if not self._turn.acquire(timeout=deadline_ms / 1000):
            text = f"other clients of this process have been asking for {deadline_ms} ms"
            return EffectiveLimits(denied=text, is_away=True)
        try:
            asked_ms = self._clock.now_ms()
            self._said = {key: said for key, said in self._said.items() if asked_ms - said[0] < FORGET_MS}
            said = self._said.get((user, client_id))
            if said is not None and said[0] >= called_ms - fresh_ms:
                return said[1]
            found = ask_limit(self._client, user, client_id, max(1, deadline_ms - (asked_ms - called_ms)), self._clock)
            if found.denied is None:
                self._said[user, client_id] = asked_ms, found
            else:
                self._client.close()
            return found
        finally:
            self._end_turn()

    def leaders(self, topics: Iterable[str], deadline_ms: int) -> dict[tuple[str, int], int]:
        """The leader's node id by topic and partition; empty where nobody says so in time. Never raises.

        Keeps no connection: who asks does so once a minute, and may have no watch to let it rest.
        """
        end_ms = self._clock.now_ms() + deadline_ms
        if not self._turn.acquire(timeout=deadline_ms / 1000):
            return {}
        try:
            left_ms = max(1, end_ms - self._clock.now_ms())
            return describe_cluster(self._client, topics, timeout_ms=left_ms).leaders
        except Exception:  # noqa: BLE001 - an application's oauth_cb may raise anything
            return {}
        finally:
            self._client.close()
            self._end_turn()

    def rest(self) -> None:
        """Close the connection, if nobody has asked for `REST_MS`."""
        if self._clock.now_ms() - self._asked_ms >= REST_MS:
            self.hang_up()

    def hang_up(self) -> None:
        """Close the connection, unless somebody asks now; the next question opens another one."""
        if not self._turn.acquire(blocking=False):
            return
        try:
            self._client.close()
        finally:
            self._turn.release()

    def _end_turn(self) -> None:
        self._asked_ms = self._clock.now_ms()
        self._turn.release()


_all: "weakref.WeakValueDictionary[Hashable, Asking]" = weakref.WeakValueDictionary()
_lock: Final = LateLock()


def asking(conf: Mapping[str, Any]) -> Asking:
    """The one for this cluster and principal; whoever wants another to share it keeps it.

    Raises:
        ConfigError: the configuration cannot be used.
    """
    key = frozenset((name, _hashable(value)) for name, value in conf.items() if str(name).startswith(_CONNECTING))
    with _lock:
        found = _all.get(key)
        if found is None:
            found = _all.setdefault(key, Asking(conf))  # a signal's handler may have made one just now
        return found


def _hashable(value: Any) -> Hashable:
    """A value of a configuration; functions and other objects are told apart by who they are."""
    return value if isinstance(value, (str, int, float, bool, type(None))) else id(value)


def _after_fork() -> None:
    _lock.begin_anew()
    _all.clear()


os.register_at_fork(after_in_child=_after_fork)
