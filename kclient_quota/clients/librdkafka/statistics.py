"""librdkafka's statistics JSON, reduced to what pacing and metrics need, as differences between two events.

Field meanings: STATISTICS.md of librdkafka. Its `throttle` window holds throttled responses only and starts anew with
every event; `rx` counts every response, so that zeros can be added back (Java's sensors record them).
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from kclient_quota.metrics import ClientThrottleMetrics

_COUNTERS = ("tx", "txbytes", "txretries", "rx", "rxbytes", "req_timeouts", "disconnects", "wakeups")
"""All tell of an entry that librdkafka made anew, also those that nobody looks at otherwise."""
COORDINATOR: Final = "GroupCoordinator"
"""The name of the connection to the group coordinator, which heartbeats go over."""
_AFTER_NAMES: Final = '", "type": "'
"""What follows the names of the client, which begin an event."""


def decoded(text: str, loads: Callable[[str], Any] = json.loads) -> dict[str, Any]:
    """One event.

    librdkafka writes the names of its client as they are, and first of all: where a `client.id` has a quote, a
    backslash or a tab in it, it is no JSON.

    Args:
        text: what librdkafka hands to `stats_cb`.
        loads: kept here, since a destructor may hear of statistics when modules are gone.

    Raises:
        ValueError: it is none, for another reason.
    """
    try:
        found: dict[str, Any] = loads(text)
    except ValueError:
        names, after, rest = text.rpartition(_AFTER_NAMES)  # the last: a `client.id` may have it in it, too
        name, _, client_id = names.removeprefix('{ "name": "').partition('", "client_id": "')
        found = {"name": name, "client_id": client_id, **loads("{" + after[3:] + rest)}
    return found


@dataclass(frozen=True, slots=True)
class BrokerDelta:
    """What happened between this client and one broker since the last statistics event.

    Attributes:
        node_id: the broker's id; for the coordinator's connection that of the broker it leads to.
        name: librdkafka's name of the connection, "host:port/id" or COORDINATOR.
        requests: requests sent.
        request_bytes: their bytes on the wire, length prefixes included.
        responses: responses received, throttled or not.
        response_bytes: their bytes on the wire.
        throttled: responses that carried a throttle time above zero.
        throttled_sum_ms: the sum of those times.
        throttled_max_ms: the longest of them.
        fetches: fetches answered, throttled or not; of what does not count requests by their kind, all responses.
        has_produced: whether it was ever sent messages.
        wakeups: how often librdkafka's thread of that broker has looked what there is to do.
        round_trip_ms: from a request to its answer, on average.
    """

    node_id: int
    name: str
    requests: int
    request_bytes: int
    responses: int
    response_bytes: int
    throttled: int
    throttled_sum_ms: int
    throttled_max_ms: int
    fetches: int
    has_produced: bool = False
    wakeups: int = 0
    round_trip_ms: float = 0.0

    def record(self, metrics: "ClientThrottleMetrics", now_ms: int) -> None:
        """Add its responses to a client's throttle times."""
        metrics.record(
            self.node_id,
            responses=self.responses,
            throttled=self.throttled,
            sum_ms=self.throttled_sum_ms,
            max_ms=self.throttled_max_ms,
            now_ms=now_ms,
        )


class StatisticsReader:
    """Turns the running totals of successive statistics events of one client into differences."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[int, ...]] = {}
        self._names: dict[str, str] = {}
        self._fetches: dict[str, int] = {}
        self._node_ids: dict[str, int] = {}
        self._messages = (0, 0)

    def differences(self, statistics: Mapping[str, Any]) -> list[BrokerDelta]:
        """Read one event, decoded.

        Returns:
            one entry per broker connection that is known by id, the coordinator's included; bootstrap entries that
            have not been identified yet are left out until they are, with their counts.
        """
        brokers: Mapping[str, dict[str, Any]] = statistics.get("brokers", {})
        for broker in brokers.values():
            if broker["nodeid"] >= 0:
                self._node_ids[broker["nodename"]] = broker["nodeid"]
                self._note_name(broker, brokers)
        return [delta for broker in brokers.values() if (delta := self._delta(broker)) is not None]

    def messages(self, statistics: Mapping[str, Any]) -> tuple[int, int]:
        """How many messages were sent since the last event, and the bytes of their keys and values."""
        before = self._messages
        self._messages = int(statistics.get("txmsgs", 0)), int(statistics.get("txmsg_bytes", 0))
        return self._messages[0] - before[0], self._messages[1] - before[1]

    def throttling(self, broker_id: int, broker_name: str) -> int:
        """Whom a throttle event is of; broker -1 is a coordinator or not identified yet, and goes by its address."""
        address = broker_name.rpartition("/")[0] or broker_name
        return broker_id if broker_id >= 0 else self._node_ids.get(address, broker_id)

    def _note_name(self, broker: Mapping[str, Any], brokers: Mapping[str, Any]) -> None:
        """A broker that has moved to another address goes on counting under another name."""
        name = broker["name"]
        connection = name.replace(broker["nodename"], "")
        before, self._names[connection] = self._names.get(connection, name), name
        if name not in self._last and before not in brokers and before in self._last:
            self._last[name] = self._last.pop(before)
            if before in self._fetches:
                self._fetches[name] = self._fetches.pop(before)

    def _delta(self, broker: dict[str, Any]) -> BrokerDelta | None:
        node_id = broker["nodeid"]
        if node_id < 0:
            known = self._node_ids.get(broker["nodename"])
            if known is None:
                return None
            node_id = known
        name = broker["name"]
        now = tuple(int(broker.get(counter, 0)) for counter in _COUNTERS)
        before = self._last.get(name, (0,) * len(_COUNTERS))
        self._last[name] = now
        # A broker entry that librdkafka made anew starts from zero again.
        changes = tuple(a - b for a, b in zip(now, before, strict=True))
        changed = now if min(changes) < 0 else changes
        tx, txbytes, _, rx, rxbytes, *_, wakeups = changed
        throttle = broker.get("throttle", {})
        return BrokerDelta(
            node_id=node_id,
            name=name,
            requests=tx,
            request_bytes=txbytes,
            responses=rx,
            response_bytes=rxbytes,
            throttled=int(throttle.get("cnt", 0)),
            throttled_sum_ms=int(throttle.get("sum", 0)),
            throttled_max_ms=int(throttle.get("max", 0)),
            fetches=self._answered_fetches(broker, rx),
            has_produced=broker.get("req", {}).get("Produce", 0) > 0,
            wakeups=wakeups,
            round_trip_ms=broker.get("rtt", {}).get("avg", 0) / 1000,
        )

    def _answered_fetches(self, broker: dict[str, Any], responses: int) -> int:
        """How many fetches a broker has answered since the last event.

        librdkafka counts what it sends by kind, but not what comes. It has one fetch on its way to a broker at a time.
        """
        if "req" not in broker:
            return responses
        name = broker["name"]
        now = int(broker["req"].get("Fetch", 0)) - min(1, int(broker.get("waitresp_cnt", 0)))
        before = self._fetches.get(name, 0)
        if now < before - 1:
            before = 0  # made anew; one less is something else that waits for its answer
        self._fetches[name] = max(now, before)
        return max(0, now - before)
