"""One pace for all clients of a process that a broker counts together: they must not be strangers to each other.

Clients of one cluster, principal and client.id have one quota on each broker. Each that paces itself alone takes the
whole of it, and all are throttled. So producers share a pacer for each broker, and take turns: whoever has had least
goes. Consumers have a pacer each, since what counts is what each of them has queued, and share out the limit.
"""

import os
import weakref
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from functools import partial
from math import inf
from types import MethodType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kclient_telemetry.locks import reentrant_lock

from kclient_quota.clients.calls import undisturbed
from kclient_quota.clients.limits import Limit
from kclient_quota.cluster.late_lock import LateLock
from kclient_quota.config import QuotaConfig, client_id_of, sasl_mechanism, security_protocol, user_of
from kclient_quota.pacing.neighbours import Need, Neighbours, Part
from kclient_quota.pacing.pacer import Pacer
from kclient_quota.pacing.sending.throttle_told import Common

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from kclient_quota.pacing.fetching.share_fetch import SharePacer

HUNGRY_MS: Final = 300
"""Whoever has not asked for so long does not wait."""
_CERTIFICATES: Final = ("ssl.certificate.", "ssl_certificate", "ssl.keystore.location", "ssl.engine.location")
_TICKETS: Final = ("sasl.oauthbearer.", "oauth_cb", "sasl.kerberos.principal", "sasl.kerberos.keytab")
"""What tells principals apart that have no name here."""


class PaceKey(NamedTuple):
    """What clients have in common that a broker counts together.

    Attributes:
        cluster: its servers.
        client_id: their `client.id`.
        limit: where their limit comes from.
        principal: as whom they log in.
    """

    cluster: Hashable
    client_id: str
    limit: Hashable
    principal: Hashable


@dataclass(slots=True)
class _Turn:
    """What one client has had, with its last batch how much, whether it waits, and until when that counts."""

    had_bytes: float = 0.0
    batch_bytes: float = 0.0
    waits: bool = False
    hungry_until_ms: int = 0


class SharedPace:
    """The pace of all that a broker counts together.

    Args:
        lock: held by whoever uses a pacer; None: one of its own.

    Attributes:
        lock: that lock.
        limit: what any of them has heard last; None before.
        common: what else they have in common.
    """

    def __init__(self, lock: "AbstractContextManager[Any] | None" = None) -> None:
        self.lock = reentrant_lock() if lock is None else lock
        self.limit: Limit | None = None
        self.common = Common()
        self._pacers: dict[int, Pacer] = {}
        self._turns: dict[int, weakref.WeakKeyDictionary[Any, _Turn]] = {}

    def pacer(self, broker: int, new: Callable[[], Pacer]) -> Pacer:
        """That of a broker, made by whoever asks first."""
        found = self._pacers.get(broker)
        if found is None:
            found = self._pacers[broker] = new()
        return found

    def follow(self, limit: Limit, now_ms: int) -> None:
        """One of them has been told this, just now: it holds for all of them, and for those who come later.

        Who is made finds what applies at that moment, which the others hear of within a minute only. And the others may
        go before they have: nobody would ever tell the newcomer anything that it does not know already.
        """
        if self.has(limit):
            return
        self.limit = limit
        for pacer in self._pacers.values():
            pacer.set_limit(limit.byte_rate, now_ms)

    def has(self, limit: Limit) -> bool:
        """Whether this is followed; who was told nothing has nothing to be followed."""
        return not limit.known or (self.limit is not None and self.limit.byte_rate == limit.byte_rate)

    def may_go(self, who: Any, broker: int, now_ms: int) -> bool:
        """Whether one that wants to send may: nobody else who waits has had less, or there is quota for them as well.

        Whose turn it is may be slow to take it, where other processes or threads have the processor: for as long
        nobody else would send, and what has been saved up is lost.
        """
        turns = self._turns.setdefault(broker, weakref.WeakKeyDictionary())
        waiting = [
            turn for other, turn in turns.items() if other is not who and turn.waits and turn.hungry_until_ms > now_ms
        ]
        mine, pacer = turns.setdefault(who, _Turn()), self._pacers.get(broker)
        if waiting:
            # Whoever comes, or comes back, has nothing to make up for. Nor has who sends little all the time, or the
            # others would stand still once it sends more.
            most = inf if pacer is None else pacer.outstanding_bytes
            least = min(turn.had_bytes for turn in waiting)
            mine.had_bytes = max(mine.had_bytes, least - (most if mine.hungry_until_ms > now_ms else 0.0))
        mine.waits, mine.hungry_until_ms = True, now_ms + HUNGRY_MS
        first = [turn.batch_bytes for turn in waiting if turn.had_bytes < mine.had_bytes]
        if not first:
            return True
        if pacer is None or pacer.owed_ms(now_ms):
            return False
        return pacer.banked_bytes >= mine.batch_bytes + sum(first)

    def on_sent(self, who: Any, broker: int, nbytes: int, *, waits: bool = True) -> None:
        """It has sent so much; whether more of its messages wait."""
        turns = self._turns.setdefault(broker, weakref.WeakKeyDictionary())
        turn = turns.setdefault(who, _Turn())
        turn.had_bytes += nbytes
        turn.batch_bytes, turn.waits = nbytes, waits

    def join(self, who: Any) -> int:
        """It is one of those that share; how many they are."""
        self.common.members.add(who)
        return len(self.common.members)


class SharedLimit(Neighbours):
    """The limit of all consumers that a broker counts together; each calls from a thread of its own."""

    def __init__(self) -> None:
        super().__init__()
        self._lock = reentrant_lock()  # a destructor may come in between, and close another consumer

    def part(self, who: Any, broker: int | None, need: Need, limit: float) -> Part:
        """See `Neighbours.part`."""
        found: Part = undisturbed(self._lock, super().part, who, broker, need, limit)
        return found

    def leave(self, who: Any) -> None:
        """It needs nothing any more: the others have its part."""
        undisturbed(self._lock, super().leave, who)


class SharedAccounts:
    """The accounts of all share consumers that a broker counts together, which a pacer has.

    Attributes:
        lock: held by whoever uses the pacer.
    """

    def __init__(self, pacer: "SharePacer") -> None:
        self.lock = reentrant_lock()  # a signal's handler may come into a poll, and poll or close
        self.pacer = pacer
        self._limit: Limit | None = None

    def follow(self, limit: Limit) -> None:
        """See `SharedPace.follow`."""
        with self.lock:
            if limit.known and (self._limit is None or self._limit.byte_rate != limit.byte_rate):
                self._limit = limit
                self.pacer.set_limit(limit.byte_rate)


_paces: "weakref.WeakValueDictionary[Hashable, SharedPace]" = weakref.WeakValueDictionary()
_locks: "weakref.WeakValueDictionary[Hashable, Any]" = weakref.WeakValueDictionary()
_limits: "weakref.WeakValueDictionary[Hashable, SharedLimit]" = weakref.WeakValueDictionary()
_accounts: "weakref.WeakValueDictionary[Hashable, SharedAccounts]" = weakref.WeakValueDictionary()
_lock: Final = LateLock()


def shared_pace(key: PaceKey) -> SharedPace:
    """The pace of all producers of this process with the same key.

    Those of all users have one lock, so that a producer that becomes another user need not change locks under the hands
    of those who hold one.
    """
    with _lock:
        found = _paces.get(key)
        if found is None:
            lock = _locks.setdefault((key.cluster, key.client_id, key.limit), reentrant_lock())
            found = _paces.setdefault(key, SharedPace(lock))  # a handler may have made one just now
        return found


def shared_limit(key: PaceKey) -> SharedLimit:
    """The limit of all consumers of this process with the same key."""
    with _lock:
        return _limits.setdefault(key, SharedLimit())


def shared_accounts(key: PaceKey, pacer: "SharePacer") -> SharedAccounts:
    """Those of all share consumers of this process with the same key, with the pacer of whoever asks first."""
    with _lock:
        return _accounts.setdefault(key, SharedAccounts(pacer))


def pace_key(conf: Mapping[str, Any], ours: QuotaConfig, byte_rate: float | None) -> PaceKey:
    """What clients of one process have in common whose bytes a broker counts together.

    Args:
        conf: their configuration.
        ours: the part of it that librdkafka does not know.
        byte_rate: the limit that was set by hand.
    """
    servers = str(conf.get("bootstrap.servers") or conf.get("metadata.broker.list")).split(",")
    cluster = tuple(sorted(server.strip() for server in servers if server.strip()))
    client_id = client_id_of(conf)
    limit = str(ours.limit_source), byte_rate, id(ours.callback) if ours.callback else None
    return PaceKey(cluster, client_id, limit, _principal(conf, ours))


def _principal(conf: Mapping[str, Any], ours: QuotaConfig) -> Hashable:
    """Whose quota it is: a name, or what the broker takes one from that nobody but it can read.

    Strangers that are taken for one have a part of their quotas each; one that is taken for two is throttled, and gives
    way to itself. `quota.user` says who it is where this cannot see it: by functions that get tokens, for example, of
    which each client has one of its own.
    """
    if ours.user:
        return ours.user
    protocol = security_protocol(conf)
    if protocol == "plaintext":  # nobody, whatever else is written
        return None
    user = user_of(conf)
    if user and sasl_mechanism(conf) != "OAUTHBEARER":
        return user
    tells = _TICKETS if "sasl" in protocol else _CERTIFICATES
    return tuple((key, _identity(conf[key])) for key in sorted(key for key in conf if str(key).startswith(tells)))


def _identity(value: Any) -> Hashable:
    """What tells a value of a configuration from others; it is not kept alive by that."""
    if isinstance(value, str | bytes | int | float | type(None)):
        return value
    if isinstance(value, MethodType):  # made anew whenever it is named
        return id(value.__self__), id(value.__func__)
    if isinstance(value, partial):
        named = tuple((name, _identity(each)) for name, each in sorted(value.keywords.items()))
        return _identity(value.func), tuple(map(_identity, value.args)), named
    return id(value)


def _after_fork() -> None:
    _lock.begin_anew()
    _paces.clear()
    _locks.clear()
    _limits.clear()
    _accounts.clear()


os.register_at_fork(after_in_child=_after_fork)
