"""How many connections may be opened per second (KIP-612): Kafka's `ConnectionQuotas`. Owns no clock."""

from collections.abc import Iterator
from ipaddress import IPv6Address, ip_address
from typing import Final

from kclient_quota.quota.entity import CONNECTION_CREATION_RATE, DEFAULT, Name
from kclient_quota.quota.manager import SENSOR_EXPIRY_MS, Metric
from kclient_quota.quota.rate import QUOTA_SAMPLES, QUOTA_WINDOW_MS, SampledAvg, SampledRate
from kclient_quota.quota.throttle import throttle_time_ms

NO_CONNECTION_RATE: Final = 2_147_483_647
"""Kafka's `connection_creation_rate` and `max.connection.creation.rate` of whoever has none."""

_GROUP: Final = "socket-server-metrics"
_RATE: Final = "connection-accept-rate"
_THROTTLE: Final = "connection-accept-throttle-time"


class _Listener:
    """What is measured of one listener."""

    __slots__ = ("address_throttle", "rate", "throttle")

    def __init__(self, rate: SampledRate) -> None:
        self.rate = rate
        self.throttle = SampledAvg()
        self.address_throttle = SampledAvg()


class _Address:
    """What is measured of one address."""

    __slots__ = ("last_ms", "rate")

    def __init__(self, rate: SampledRate, now_ms: int) -> None:
        self.rate = rate
        self.last_ms = now_ms


class ConnectionQuotas:
    """Measures connections to one broker: all of them, those of each listener, and those of addresses with a quota.

    A connection is told first how long it `waits` (`max.connection.creation.rate` of the broker holds up whoever
    comes); when that is over, for how long it is `refused` (`connection_creation_rate` of its address): it is not
    served at all, is closed after that time, and does not count.

    Args:
        samples: `quota.window.num`.
        window_ms: `quota.window.size.seconds` x 1000; also the longest throttle.
    """

    def __init__(self, *, samples: int = QUOTA_SAMPLES, window_ms: int = QUOTA_WINDOW_MS) -> None:
        self.samples = samples
        self.window_ms = window_ms
        self._default: float = NO_CONNECTION_RATE
        self._limits: dict[str, float] = {}
        self._addresses: dict[str, _Address] = {}
        self._listeners: dict[str, _Listener] = {}
        self._broker = self._new_rate()

    def update_quota(self, address: Name, key: str, limit: float | None) -> None:
        """Set the quota of an address, or of those that have none (`DEFAULT`); None takes it away."""
        if key != CONNECTION_CREATION_RATE:
            return
        if address is DEFAULT:
            self._default = NO_CONNECTION_RATE if limit is None else limit
        elif limit is None:
            self._limits.pop(_normal(address), None)
        else:
            self._limits[_normal(address)] = limit

    def quota(self, address: str) -> float:
        """Connections per second of an address; `NO_CONNECTION_RATE` when it has no quota."""
        return self._limits.get(_normal(address), self._default)

    def waits_ms(self, listener: str, limit: float, now_ms: int) -> int:
        """A connection has come: how long it and those behind it wait, for a broker that takes `limit` a second."""
        found = self._listener(listener)
        self._broker.record(1.0, now_ms)
        found.rate.record(1.0, now_ms)
        wait_ms = self._throttle_ms(self._broker, limit, now_ms)
        if wait_ms:
            found.throttle.record(wait_ms, now_ms)
        return wait_ms

    def refused_ms(self, listener: str, address: str, now_ms: int) -> int:
        """0 if a connection that waits no more is served, else after how long it is to be closed, unserved."""
        limit = self.quota(address)
        if limit == NO_CONNECTION_RATE:
            return 0
        measured = self._address(address, now_ms)
        measured.rate.record(1.0, now_ms)
        refused_ms = self._throttle_ms(measured.rate, limit, now_ms)
        if refused_ms:
            found = self._listener(listener)
            found.address_throttle.record(refused_ms, now_ms)
            for rate in (measured.rate, self._broker, found.rate):
                rate.record(-1.0, now_ms)
        return refused_ms

    def metrics(self, now_ms: int) -> Iterator[Metric]:
        """Every figure by Kafka's names and tags."""
        yield Metric(f"broker-{_RATE}", _GROUP, {}, self._broker.measure(now_ms))
        for name, listener in self._listeners.items():
            tags = {"listener": name}
            yield Metric(_RATE, _GROUP, tags, listener.rate.measure(now_ms))
            yield Metric(_THROTTLE, _GROUP, tags, listener.throttle.measure(now_ms))
            yield Metric(f"ip-{_THROTTLE}", _GROUP, tags, listener.address_throttle.measure(now_ms))
        self._expire(now_ms)
        for address, measured in self._addresses.items():
            yield Metric(_RATE, _GROUP, {"ip": address}, measured.rate.measure(now_ms))

    # Within

    def _new_rate(self) -> SampledRate:
        return SampledRate(self.samples, self.window_ms)

    def _listener(self, name: str) -> _Listener:
        found = self._listeners.get(name)
        if found is None:
            found = self._listeners[name] = _Listener(self._new_rate())
        return found

    def _address(self, address: str, now_ms: int) -> _Address:
        key = _normal(address)
        found = self._addresses.get(key)
        if found is None or now_ms - found.last_ms > SENSOR_EXPIRY_MS:
            found = self._addresses[key] = _Address(self._new_rate(), now_ms)
        found.last_ms = now_ms
        return found

    def _expire(self, now_ms: int) -> None:
        oldest_kept = now_ms - SENSOR_EXPIRY_MS
        for key in [key for key, measured in self._addresses.items() if measured.last_ms < oldest_kept]:
            del self._addresses[key]

    def _throttle_ms(self, rate: SampledRate, limit: float, now_ms: int) -> int:
        if limit == NO_CONNECTION_RATE:
            return 0
        value = rate.measure(now_ms)
        return min(throttle_time_ms(value, limit, rate.window_size_ms(now_ms)), self.window_ms)


def _normal(address: str) -> str:
    """One spelling of each address, as Java has it: an IPv4 address mapped to IPv6 is the IPv4 address."""
    try:
        found = ip_address(address)
    except ValueError:
        return address
    if isinstance(found, IPv6Address) and found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(found)
