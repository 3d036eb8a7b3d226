"""A producer's gates: owns the lock, the clock and the words in the log; decides through `admission`."""

import logging
import threading
from collections.abc import Callable, Mapping
from typing import Any, Final

from kclient_quota.clients.admission import Gate
from kclient_quota.clients.librdkafka.statistics import BrokerDelta, StatisticsReader
from kclient_quota.clients.limits import Limit
from kclient_quota.clients.quota_state import BrokerQuotaState
from kclient_quota.clients.routing import NO_LEADER, Route, Router
from kclient_quota.clients.throttle_log import ThrottleLog, words
from kclient_quota.clock import SYSTEM_CLOCK, Clock
from kclient_quota.config import Backoff
from kclient_quota.metrics import PRODUCER, ClientThrottleMetrics, MetricName
from kclient_quota.pacing.pacer import Pacer

logger = logging.getLogger("kclient_quota")

ONLY_BROKER: Final = -1
"""Key of the one gate of a client that sees one broker."""
CALM_MS: Final = 60_000
"""After how long without a throttle a client that no quota is known for is let go again."""
DEFAULT_CLIENT_ID: Final = "rdkafka"


class ProducerGates:
    """Everything of one producer that is not librdkafka's.

    Args:
        backoff: whether to gate at all.
        client_id: for metrics and the log.
        limit: what was found before the producer was made.
        clock: monotonic milliseconds.
        linger_ms: librdkafka's `linger.ms`.
    """

    def __init__(
        self, backoff: Backoff, client_id: str, limit: Limit, clock: Clock = SYSTEM_CLOCK, *, linger_ms: int = 0
    ) -> None:
        self.lock = threading.Lock()
        self.clock = clock
        self.limit = limit
        self.on_stance: Callable[[bool], None] | None = None
        self.ask_soon: Callable[[], None] | None = None
        self._backoff = backoff
        self._client_id = client_id
        self._linger_ms = linger_ms
        self._reader = StatisticsReader()
        self._metrics = ClientThrottleMetrics(PRODUCER, client_id)
        self._stands_back = False
        self._gates: dict[int, Gate] = {}
        self.only: Gate | None = self._new_gate(ONLY_BROKER)
        self._only_id = ONLY_BROKER
        self._log = ThrottleLog(client_id, "produce() backs off", backoff)

    # Which gate ---------------------------------------------------------------------------------------------------

    def gate(self, broker_id: int) -> Gate:
        """The gate of a broker; the only one while the client sees one broker. Call with the lock held."""
        if self.only is not None:
            return self.only
        found = self._gates.get(broker_id)
        return found if found is not None else self._new_gate(broker_id)

    def any_gate(self) -> Gate:
        """The gate of messages whose broker is not known."""
        with self.lock:
            return self.gate(NO_LEADER)

    def split(self) -> None:
        """There is more than one broker: one gate for each from now on."""
        with self.lock:
            self.only = None
            self._gates.clear()

    def _new_gate(self, broker_id: int) -> Gate:
        limit = self.limit
        pacer = Pacer(limit.byte_rate, samples=limit.samples, window_ms=limit.window_ms)
        gate = Gate(pacer, limit.byte_rate, self._linger_ms)
        gate.stands_back = self._stands_back
        self._gates[broker_id] = gate
        return gate

    # Admission ----------------------------------------------------------------------------------------------------

    def admit(self, gate: Gate, cost: int) -> int:
        """Use `cost` bytes of the gate: 0 when they are granted, else after how many ms to ask again."""
        now_ms = self.clock.now_ms()
        with self.lock:
            wait_ms = gate.admit(cost, now_ms)
            if not wait_ms:
                gate.left -= cost
            return wait_ms

    def give_back(self, gate: Gate, cost: int) -> None:
        """A message was admitted and then refused by librdkafka."""
        with self.lock:
            gate.left += cost

    def grant_no_more(self, gate: Gate) -> None:
        """Take back what is left of a grant."""
        with self.lock:
            gate.grant_no_more()

    def settled(self, gate: Gate, handed: int) -> None:
        """Everything of this gate up to `handed` bytes has been reported."""
        with self.lock:
            gate.settle(handed, self.clock.now_ms())

    def settle_but(self, nbytes: int) -> None:
        """Librdkafka holds at most `nbytes` that have not been reported."""
        now_ms = self.clock.now_ms()
        with self.lock:
            for gate in self._gates.values():
                gate.settle(gate.handed - nbytes, now_ms)

    def choose(self, route: Route, cost: int) -> int:
        """Choose where the next messages of a topic that may go anywhere go: the partition."""
        now_ms = self.clock.now_ms()
        with self.lock:
            route.steer(cost, now_ms)
            route.count(route.gates[route.partition].next_grant)
            return route.partition

    def learn(self, topic: str, leaders: Mapping[int, int], router: Router) -> None:
        """The leaders of a topic as the cluster has them now."""
        now_ms = self.clock.now_ms()
        with self.lock:
            router.learn(topic, leaders, self.gate, now_ms)

    def throttled(self) -> bool:
        """Whether any broker throttles now."""
        now_ms = self.clock.now_ms()
        return any(gate.throttled_for_ms(now_ms) for gate in self._gates.values())

    def shortest_throttle_ms(self) -> int:
        """For how long every broker throttles; 0 when one does not."""
        now_ms = self.clock.now_ms()
        with self.lock:
            return min((gate.throttled_for_ms(now_ms) for gate in self._gates.values()), default=0)

    def longest_throttle_ms(self) -> int:
        """For how long some broker throttles."""
        now_ms = self.clock.now_ms()
        with self.lock:
            return max((gate.throttled_for_ms(now_ms) for gate in self._gates.values()), default=0)

    def holds_up(self, deadline_ms: int) -> bool:
        """Whether a broker that has yet to report something is throttled until after `deadline_ms`."""
        now_ms = self.clock.now_ms()
        with self.lock:
            return any(now_ms + gate.throttled_for_ms(now_ms) > deadline_ms for gate in self._busy())

    def outlasts(self, deadline_ms: int) -> bool:
        """Whether every broker that has yet to report something is throttled until after `deadline_ms`."""
        now_ms = self.clock.now_ms()
        with self.lock:
            return all(now_ms + gate.throttled_for_ms(now_ms) > deadline_ms for gate in self._busy())

    def _busy(self) -> list[Gate]:
        """The gates of brokers that have yet to report something; all of them where that is not known."""
        return [gate for gate in self._gates.values() if gate.outstanding > 0] or list(self._gates.values())

    # What librdkafka and the cluster say --------------------------------------------------------------------------

    def on_statistics(self, text: str) -> None:
        """One statistics event."""
        now_ms = self.clock.now_ms()
        for delta in self._reader.read(text):
            self._on_delta(delta, now_ms)
        self._log.on_time(now_ms)
        if not self.limit.known:
            self._ask(now_ms)
        self.review()

    def _on_delta(self, delta: BrokerDelta, now_ms: int) -> None:
        self._metrics.record(
            delta.node_id,
            responses=delta.responses,
            throttled=delta.throttled,
            sum_ms=delta.throttled_sum_ms,
            max_ms=delta.throttled_max_ms,
            now_ms=now_ms,
        )
        with self.lock:
            self._only_id = delta.node_id
            gate = self.only or self._gates.get(delta.node_id)
            if gate is not None:
                # The broker does not count the four bytes of a request's length.
                gate.on_wire(delta.request_bytes - 4 * delta.requests)

    def on_throttle(self, broker_name: str, broker_id: int, throttle_ms: int) -> None:
        """One throttle event; broker -1 is a coordinator or not identified yet, and goes by its address."""
        if throttle_ms <= 0:
            return
        now_ms = self.clock.now_ms()
        if broker_id < 0:
            found = self._reader.node_id(broker_name.rpartition("/")[0] or broker_name)
            broker_id = broker_id if found is None else found
        with self.lock:
            self.gate(broker_id).on_throttle(throttle_ms, now_ms)
        self._log.on_throttle(broker_name, throttle_ms, self.limit, now_ms)
        self._ask(now_ms)
        self.review()

    def on_limit(self, limit: Limit) -> None:
        """The limit was asked for again; from any thread, so the next statistics event sees to the stance."""
        now_ms = self.clock.now_ms()
        with self.lock:
            before, self.limit = self.limit, limit
            changed = before.byte_rate != limit.byte_rate or before.known != limit.known
            if changed:
                for gate in self._gates.values():
                    gate.set_limit(limit.byte_rate, now_ms)
        if changed:
            logger.info("The producer quota of client %r is now %s", self._client_id, words(limit))

    def stand_back(self, back: bool) -> None:
        """Leave waiting out throttles to librdkafka, or no longer: only what is on its way is bounded then."""
        with self.lock:
            self._stands_back = back
            for gate in self._gates.values():
                gate.stands_back = back

    # Stepping aside -----------------------------------------------------------------------------------------------

    def gated(self, now_ms: int) -> bool:
        """Whether messages must pass a gate: not while it is known that nothing limits them."""
        if self._backoff is Backoff.OFF:
            return False
        if not self.limit.unlimited:
            return True
        last_ms = self._log.last_ms
        return last_ms is not None and now_ms - last_ms < CALM_MS

    def review(self) -> None:
        """Step in or aside, as things stand."""
        if self.on_stance is not None:
            self.on_stance(self.gated(self.clock.now_ms()))

    # What users are told ------------------------------------------------------------------------------------------

    def metrics(self) -> dict[MetricName, float]:
        """Throttle times by Kafka's names."""
        return self._metrics.collect(self.clock.now_ms())

    def state(self) -> dict[int, BrokerQuotaState]:
        """What is known about each broker, by its id; -1 as long as that is not known."""
        now_ms = self.clock.now_ms()
        with self.lock:
            limit = self.limit
            return {
                self._only_id if node == ONLY_BROKER else node: gate.state(limit.byte_rate, str(limit.source), now_ms)
                for node, gate in self._gates.items()
            }

    def _ask(self, now_ms: int) -> None:
        """Have the limit asked for again, now and then."""
        if self.ask_soon is not None and self._log.asks(now_ms):
            self.ask_soon()


def warn_of_default_client_id(conf: Mapping[str, Any], limit: Limit) -> None:
    """Say so when a client-id quota applies to everybody who never chose a client.id."""
    by_client_id = limit.byte_rate is not None and limit.decided_by is not None and "client-id" in limit.decided_by
    if by_client_id and str(conf.get("client.id", DEFAULT_CLIENT_ID)) == DEFAULT_CLIENT_ID:
        logger.warning(
            "client.id is librdkafka's default, %r, and a client-id quota applies (%s): all clients that have not "
            "chosen one share it; set client.id",
            DEFAULT_CLIENT_ID,
            limit.decided_by,
        )
