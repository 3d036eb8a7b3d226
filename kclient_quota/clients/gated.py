"""How a gated producer waits, and finds the gate of a message; the doors themselves are in `producer`."""

import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException, Message

from kclient_quota.clients.admission import RECORD_BYTES, SOON_MS, Gate
from kclient_quota.clients.aside import CallbackGuard, Where
from kclient_quota.clients.gate import ProducerGates
from kclient_quota.clients.interceptor import ProducerInterceptors, ProducerRecord
from kclient_quota.clients.routing import Route, Router
from kclient_quota.clients.transaction import Transaction
from kclient_quota.clients.wait_time import WaitTime
from kclient_quota.errors import QuotaThrottledError

logger = logging.getLogger("kclient_quota")

SLICE_MS: Final = 100
"""Longest poll of a waiting call: how soon Ctrl-C, a raised quota and the heartbeat are noticed."""
METADATA_MS: Final = 500
ROUTE_MS: Final = 30_000
"""How old a topic's leaders may be."""
ASK_AGAIN_MS: Final = 1_000

Callback = Callable[[KafkaError | None, Message], Any]

plain_produce = confluent_kafka.Producer.produce


class GatedProducer(confluent_kafka.Producer):
    """What stands between a producer's doors and librdkafka."""

    # Python finds the methods of an object without a dictionary as fast as those of confluent_kafka's own.
    __slots__ = (
        "__weakref__",
        "_abandoned",
        "_ask_conf",
        "_chain",
        "_closed",
        "_default_callback",
        "_errors_only",
        "_gated",
        "_gates",
        "_guard",
        "_heartbeat",
        "_map_due_ms",
        "_max_block_ms",
        "_metrics",
        "_only",
        "_raises",
        "_router",
        "_stop_watch",
        "_telemetry",
        "_transaction",
        "_waited",
    )

    _gates: ProducerGates
    _guard: CallbackGuard
    _router: Router
    _chain: ProducerInterceptors
    _transaction: Transaction
    _waited: WaitTime
    _heartbeat: Callable[[], Any] | None
    _default_callback: Callback | None
    _only: Gate | None
    _gated: bool
    _raises: bool
    _errors_only: bool
    _max_block_ms: int
    _map_due_ms: int

    # Waiting ------------------------------------------------------------------------------------------------------

    def _pass(self, gate: Gate, cost: int, callback: Callback | None) -> Callback | None:
        """Wait until the gate admits `cost` bytes; returns the callback to hand over with the message."""
        wait_ms = self._admit(gate, cost)
        if wait_ms:
            self._wait(gate, cost, wait_ms)
        return callback if gate.left >= cost else self._marked(gate, callback)

    def _admit(self, gate: Gate, cost: int) -> int:
        """Have `cost` bytes admitted: 0 when they are, else after how many milliseconds to ask again."""
        gates = self._gates
        if not self._transaction.is_late(gates.clock.now_ms()):
            return gates.admit(gate, cost)
        # What is sent now must not wait behind anything whose answer may tell of a long throttle.
        if gate.outstanding:
            return SOON_MS
        wait_ms = gates.admit(gate, cost)
        if not wait_ms:
            gates.grant_no_more(gate)
        return wait_ms

    def _marked(self, gate: Gate, callback: Callback | None) -> Callback:
        """The callback of the last message of a grant: the mark by which deliveries are followed."""
        return partial(_delivered, self._gates, gate, gate.handed, callback or self._default_callback)

    def _wait(self, gate: Gate, cost: int, wait_ms: int) -> None:
        clock, era = self._gates.clock, self._transaction.open_era
        where = self._guard.where()
        self._mind_transaction(clock.now_ms() + wait_ms, where)
        if self._raises or where is Where.INSIDE:
            raise _refused(gate, wait_ms)
        began_ms = clock.now_ms()
        deadline_ms = began_ms + self._max_block_ms
        gate.waiting += 1
        try:
            while wait_ms:
                now_ms = clock.now_ms()
                remaining_ms = deadline_ms - now_ms
                if remaining_ms <= 0:
                    raise _refused(gate, wait_ms)
                self._mind_transaction(now_ms + wait_ms, where)
                self._let_pass(min(wait_ms, remaining_ms, SLICE_MS), where, cost)
                self._transaction.insist(era)
                wait_ms = self._admit(gate, cost)
        finally:
            gate.waiting -= 1
            self._waited.add(clock.now_ms() - began_ms)

    def _let_pass(self, wait_ms: int, where: Where, cost: int) -> None:
        """Let time pass as an application that polls does."""
        if where is Where.OUTSIDE:
            with self._guard:
                super().poll(wait_ms / 1000)
        else:
            self._gates.clock.sleep_ms(wait_ms)
        queued = len(self)
        if not queued or self._errors_only:
            self._gates.settle_but(queued * cost)
        if self._heartbeat is not None:
            self._heartbeat()

    # Transactions -------------------------------------------------------------------------------------------------

    def _mind_transaction(self, until_ms: int, where: Where) -> None:
        """Tell of an open transaction that must not be waited for until `until_ms`, or abort it and raise."""
        transaction = self._transaction
        if not transaction.outlived_by(until_ms):
            return
        if transaction.aborts and where is not Where.INSIDE:
            raise self._end_overdue(where)
        transaction.report()

    def _end_overdue(self, where: Where) -> KafkaException:
        """Abort the transaction within the application's call; returns what to raise."""
        raise NotImplementedError

    def _deliver(self, deadline_ms: int | None) -> int:
        """Flush, minding an open transaction; returns what is left."""
        era = self._transaction.open_era
        left = self._deliver_in_time(deadline_ms)
        self._transaction.insist(era)
        return left

    def _deliver_in_time(self, deadline_ms: int | None) -> int:
        gates, last_ms = self._gates, self._transaction.last_ms
        if last_ms is None or not self._gated:
            return self._drain(deadline_ms)
        until_ms = last_ms if deadline_ms is None else min(last_ms, deadline_ms)
        left = self._drain(until_ms, partial(gates.holds_up, last_ms))
        now_ms = gates.clock.now_ms()
        if left and (now_ms >= last_ms or gates.holds_up(last_ms)):
            self._mind_transaction(last_ms + 1, Where.OUTSIDE)
        elif until_ms == deadline_ms:
            return left
        return self._drain(deadline_ms) if left else 0

    def _flush(self, timeout: float) -> int:
        with self._guard:
            left = super().flush(timeout)
        if not left:
            self._gates.settle_but(0)
        return left

    def _drain(self, deadline_ms: int | None, stop: Callable[[], bool] | None = None) -> int:
        """Flush in slices until all is delivered, `deadline_ms` or `stop()`; returns what is left."""
        clock = self._gates.clock
        while True:
            slice_ms = SLICE_MS if deadline_ms is None else min(SLICE_MS, max(0, deadline_ms - clock.now_ms()))
            stopped = stop is not None and stop()
            left = self._flush(0 if stopped else slice_ms / 1000)
            if self._heartbeat is not None:
                self._heartbeat()
            if not left or not slice_ms or stopped:
                return left

    # Where a message goes -----------------------------------------------------------------------------------------

    def _produce_general(
        self,
        topic: str,
        value: Any,
        key: Any,
        partition: int,
        callback: Callback | None,
        timestamp: int,
        headers: Any,
    ) -> None:
        """For several brokers, and for interceptors."""
        if not self._chain:
            self._hand(topic, value, key, partition, callback, timestamp, headers)
            return
        record = self._chain.on_send(ProducerRecord(topic, value, key, partition, timestamp, headers))
        try:
            self._hand(
                record.topic,
                record.value,
                record.key,
                record.partition,
                partial(_acknowledged, self._chain, record.headers, callback or self._default_callback),
                record.timestamp,
                record.headers,
            )
        except Exception as error:
            self._chain.on_send_error(record, error)
            raise

    def _hand(
        self,
        topic: str,
        value: Any,
        key: Any,
        partition: int,
        callback: Callback | None,
        timestamp: int,
        headers: Any,
    ) -> None:
        if not self._gated:
            plain_produce(self, topic, value, key, partition, callback, None, timestamp, headers)
            return
        cost = RECORD_BYTES + (len(value) if value else 0) + (len(key) if key else 0)
        if headers:
            cost += header_bytes(headers)
        gate, partition = self._gate_of(topic, key, partition, cost)
        left = gate.left - cost
        if left >= cost:
            gate.left = left
        else:
            callback = self._pass(gate, cost, callback)
        try:
            plain_produce(self, topic, value, key, partition, callback, None, timestamp, headers)
        except BaseException:
            self._gates.give_back(gate, cost)
            raise

    def _gate_of(self, topic: str, key: Any, partition: int, cost: int) -> tuple[Gate, int]:
        """The gate of a message and the partition to hand over with it."""
        gates, router = self._gates, self._router
        if gates.only is not None and gates.clock.now_ms() >= self._map_due_ms:
            self._find_brokers(topic)
        if gates.only is not None:
            return gates.only, partition
        route = router.route(topic)
        if route is None:
            self._find_brokers(topic)
            route = router.route(topic)
        if route is None:
            return gates.any_gate(), partition
        target = router.target(route, key, partition)
        gate = route.gates[route.partition if target is None else target]
        if gate.left < cost:
            # Once for each grant.
            route = self._fresh(topic, route)
            target = router.target(route, key, partition)
            gate = route.gates[gates.choose(route, cost) if target is None else target]
        return gate, route.partition if target is None else partition

    def _fresh(self, topic: str, route: Route) -> Route:
        """The route, asked for anew when it is old: leaders move."""
        now_ms = self._gates.clock.now_ms()
        if now_ms - route.found_at_ms < ROUTE_MS:
            return route
        self._find_brokers(topic)
        found = self._router.route(topic) or route
        if found is route:
            # Nobody could be asked, or has answered.
            route.found_at_ms = now_ms - ROUTE_MS + ASK_AGAIN_MS
        return found

    def _find_brokers(self, topic: str) -> bool:
        """Ask which brokers there are and which lead the topic; whether there are several."""
        gates = self._gates
        now_ms = gates.clock.now_ms()
        self._map_due_ms = now_ms + ROUTE_MS
        if gates.throttled() or self._guard.where() is Where.INSIDE:
            # A muted connection does not answer, and a callback must not wait.
            return gates.only is None
        try:
            metadata = self.list_topics(topic, timeout=min(METADATA_MS, max(self._max_block_ms, 1)) / 1000)
        except KafkaException as error:
            logger.debug("Which brokers lead %s is not known: %s", topic, error)
            return gates.only is None
        if gates.only is not None:
            if len(metadata.brokers) <= 1:
                return False
            gates.split()
        self._only = None
        found = metadata.topics.get(topic)
        if found is not None and found.partitions:
            gates.learn(topic, {p: info.leader for p, info in found.partitions.items()}, self._router)
        return True


def _delivered(
    gates: ProducerGates, gate: Gate, handed: int, callback: Callback | None, error: KafkaError | None, message: Message
) -> None:
    gates.settled(gate, handed)
    if callback is not None:
        callback(error, message)


def _acknowledged(
    chain: ProducerInterceptors, headers: Any, callback: Callback | None, error: KafkaError | None, message: Message
) -> None:
    chain.on_acknowledgement(message, error, headers)
    if callback is not None:
        callback(error, message)


def _refused(gate: Gate, wait_ms: int) -> QuotaThrottledError:
    if gate.waits_for_deliveries:
        reason = (
            f"{gate.outstanding:,} bytes are on their way and the quota lets no more be: the broker is slow, or away"
        )
    else:
        reason = "the broker's quota is used up"
    return QuotaThrottledError(
        f"{reason}; try again in {wait_ms} ms, raise max.block.ms, or have the quota raised", retry_after_ms=wait_ms
    )


def header_bytes(headers: Any) -> int:
    """What a message's headers take, about."""
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    return sum(len(name) + (len(value) if value else 0) + 2 for name, value in pairs)
