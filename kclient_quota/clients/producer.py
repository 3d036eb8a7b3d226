"""`Producer`: a drop-in for confluent_kafka's that admits messages only when their broker may take them."""

import logging
import weakref
from collections.abc import Mapping
from functools import partial
from typing import Any, Final

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException

from kclient_quota.clients import producer_settings as settings
from kclient_quota.clients.admission import RECORD_BYTES, Gate
from kclient_quota.clients.aside import DOORS, CallbackGuard
from kclient_quota.clients.gate import DEFAULT_CLIENT_ID, ProducerGates, warn_of_default_client_id
from kclient_quota.clients.gated import Callback, header_bytes
from kclient_quota.clients.interceptor import ProducerInterceptors, load
from kclient_quota.clients.librdkafka.partitioner import DEFAULT, Partitioner
from kclient_quota.clients.limits import UNKNOWN
from kclient_quota.clients.quota_state import BrokerQuotaState
from kclient_quota.clients.routing import Router
from kclient_quota.clients.stepping_aside import aside
from kclient_quota.clients.telemetry import TelemetryMethods, new_telemetry
from kclient_quota.clients.transacting import TransactingProducer
from kclient_quota.clients.transaction import Transaction
from kclient_quota.clients.wait_time import WaitTime
from kclient_quota.config import Backoff, split
from kclient_quota.errors import QuotaThrottledError
from kclient_quota.metrics import PRODUCER, MetricName
from kclient_quota.pacing.pacer import Pacer

logger = logging.getLogger("kclient_quota")

PURGE_MS: Final = 2_000
"""How long reports of purged messages may take."""

_produce = confluent_kafka.Producer.produce


class _OpenGate(Gate):
    """The gate of a producer that nothing limits, where its doors have to be Python all the same."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(Pacer())
        self.left = 1 << 62


class Producer(TransactingProducer, TelemetryMethods):
    """confluent_kafka's Producer under a quota.

    While a quota applies, `produce()` waits until the message's broker may take it (`quota.backoff=block`, up to
    `max.block.ms`) or raises `QuotaThrottledError` (`raise`); callbacks are served meanwhile. While none applies it is
    confluent_kafka's own `produce`.

    Args:
        config: confluent_kafka's configuration and, all optional, ours (`kclient_quota.config.QUOTA_KEYS`).
        heartbeat: a consumer to keep in its group while this producer waits.
        kwargs: further configuration, as confluent_kafka takes it.

    Raises:
        ConfigError: one of our keys is misspelt or cannot be used.
    """

    __slots__ = ()

    def __init__(self, config: Mapping[str, Any] | None = None, /, *, heartbeat: Any = None, **kwargs: Any) -> None:
        given = {**(config or {}), **kwargs}
        conf, ours = split(given)
        chain = load(ours.interceptors, given, ("on_send", "on_acknowledgement"))
        self._ask_conf = dict(conf)
        finder = settings.limit_finder(ours, self._ask_conf)
        limit = UNKNOWN if ours.backoff is Backoff.OFF else finder.find()
        warn_of_default_client_id(conf, limit)
        self._max_block_ms = ours.max_block_ms
        self._raises = ours.backoff is Backoff.RAISE
        self._heartbeat = settings.keep_alive(heartbeat)
        self._chain = ProducerInterceptors(chain)
        self._default_callback: Callback | None = conf.get("on_delivery")
        self._errors_only = settings.is_true(conf.get("delivery.report.only.error"))
        self._transaction = Transaction(conf, ours.transaction_timeout)
        self._guard = CallbackGuard()
        self._router = Router(Partitioner(str(conf.get("partitioner", DEFAULT))))
        self._map_due_ms = 0
        self._closed = self._abandoned = False
        inner = self._transaction.with_message_timeout(settings.with_defaults(conf, limit))
        client_id = str(conf.get("client.id", DEFAULT_CLIENT_ID))
        gates = self._gates = ProducerGates(ours.backoff, client_id, limit, linger_ms=settings.linger_ms(inner))
        self._waited = WaitTime()
        self._metrics = partial(settings.metrics, gates, self._waited, client_id)
        self._gated = True
        self._only: Gate | None = None if chain else gates.only
        self._telemetry = new_telemetry(PRODUCER, conf, self._metrics)
        super().__init__(settings.with_callbacks(inner, gates, self._guard, limit, self._telemetry))
        self._start_telemetry()
        gates.on_stance = partial(_take_stance, weakref.ref(self))
        watch = settings.watch(finder, gates)
        gates.ask_soon = watch.ask_soon
        self._stop_watch = weakref.finalize(self, watch.close)
        gates.review()
        if ours.backoff is not Backoff.OFF:
            watch.start()

    # Doors --------------------------------------------------------------------------------------------------------

    def produce(
        self,
        topic: str,
        value: str | bytes | None = None,
        key: str | bytes | None = None,
        partition: int = -1,
        callback: Callback | None = None,
        on_delivery: Callback | None = None,
        timestamp: int = 0,
        headers: Any = None,
    ) -> None:
        """As confluent_kafka's; waits, or raises, while the message's broker may not take it.

        Raises:
            QuotaThrottledError: after `max.block.ms`; at once with `quota.backoff=raise` and inside a callback.
            KafkaException: within a transaction, as `commit_transaction()`.
        """
        if callback is None:
            callback = on_delivery
        gate = self._only
        if gate is None:
            self._produce_general(topic, value, key, partition, callback, timestamp, headers)
            return
        cost = RECORD_BYTES
        if value is not None:
            cost += len(value)
        if key is not None:
            cost += len(key)
        if headers:
            cost += header_bytes(headers)
        # Without the lock: threads that both subtract at once may admit one message early, and that is all.
        left = gate.left - cost
        if left >= cost:
            gate.left = left
        else:
            if self._gates.clock.now_ms() >= self._map_due_ms and self._find_brokers(topic):
                self._produce_general(topic, value, key, partition, callback, timestamp, headers)
                return
            callback = self._pass(gate, cost, callback)
        try:
            _produce(self, topic, value, key, partition, callback, None, timestamp, headers)
        except BaseException:
            self._gates.give_back(gate, cost)
            raise

    def produce_batch(
        self,
        topic: str,
        messages: list[dict[str, Any]],
        partition: int = -1,
        callback: Callback | None = None,
        on_delivery: Callback | None = None,
    ) -> int:
        """As confluent_kafka's; hands over what the broker may take, waits, and goes on.

        Messages that are not admitted within `max.block.ms` get an `_error`, as those that a full queue refuses.

        Returns:
            how many were handed over.

        Raises:
            QuotaThrottledError: none was.
        """
        if callback is None:
            callback = on_delivery
        if not settings.is_batch(messages):
            return super().produce_batch(topic, messages, partition, callback)  # which says what is wrong
        done = sent = 0
        while done < len(messages):
            try:
                tried, good = self._produce_some(topic, messages[done:], partition, callback)
            except QuotaThrottledError as error:
                if not sent:
                    raise
                for message in messages[done:]:
                    message["_error"] = _queue_full(error)
                break
            done += tried
            sent += good
        return sent

    def poll(self, timeout: float = -1) -> int:
        """As confluent_kafka's."""
        with self._guard:
            return super().poll(timeout)

    def flush(self, timeout: float = -1) -> int:
        """As confluent_kafka's; keeps the heartbeat going.

        Raises:
            KafkaException: within a transaction, as `commit_transaction()`.
        """
        if self._heartbeat is None and self._transaction.last_ms is None:
            return self._flush(timeout)
        return self._deliver(self._deadline_ms(timeout))

    def close(self) -> bool:
        """Deliver what there is and close; takes little more than `max.block.ms`.

        What cannot be delivered by then is purged: at once where the broker's throttle lasts longer. Every message
        gets its delivery report.

        Returns:
            True; False if a transaction is open and its coordinator does not answer in time. The broker aborts it then,
            after `transaction.timeout.ms`, and this client's last threads end with the object.
        """
        gates = self._gates
        if not self._closed:
            deadline_ms = gates.clock.now_ms() + self._max_block_ms
            left = self._drain(deadline_ms, stop=partial(gates.outlasts, deadline_ms))
            if left:
                logger.warning("Producer closes with %d messages that its broker did not take: they are purged", left)
                self.purge()
                self._drain(gates.clock.now_ms() + PURGE_MS)
            self._closed = True
            self._stop_telemetry()
            self._stop_watch()
            self._chain.close()
            if not self._leave_transaction(max(PURGE_MS, deadline_ms - gates.clock.now_ms()) / 1000):
                logger.warning("Producer closes with a transaction open that its coordinator did not abort in time")
                self._abandoned = True
        if self._abandoned:
            return False
        with self._guard:
            try:
                return super().close()
            except KafkaException as error:
                if not error.args[0].fatal():
                    raise
                logger.error("Producer closes after a fatal error: %s", error)  # noqa: TRY400 - nobody's stack is of use
                return super().close()

    def __exit__(self, *error: object) -> None:
        self.close()

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """As confluent_kafka's; the quota is asked for with them, too."""
        super().set_sasl_credentials(username, password)
        self._ask_conf.update({"sasl.username": username, "sasl.password": password})
        self._renew_telemetry(username, password)

    def metrics(self) -> dict[MetricName, float]:
        """Throttle and waiting times by Kafka's names, in ms: per client, and per broker with the tag `node-id`."""
        return self._metrics()

    def quota_state(self) -> dict[int, BrokerQuotaState]:
        """What is known about the quota on each broker, by its id; -1 as long as that is not known."""
        return self._gates.state()

    def _step(self, gated: bool) -> None:
        """In or aside. Only the doors that nobody has overridden can be C's own; the others find an open gate."""
        self._gated = gated
        if gated:
            self.__class__ = getattr(type(self), "class_gated", type(self))
            self._only = None if self._chain else self._gates.only
            self._guard.stepped_in()
        elif not self._chain:
            self._only = _OPEN
            self.__class__ = aside(type(self), Producer, confluent_kafka.Producer, DOORS)

    # Batches ------------------------------------------------------------------------------------------------------

    def _produce_some(
        self, topic: str, messages: list[dict[str, Any]], partition: int, callback: Callback | None
    ) -> tuple[int, int]:
        """Hand over the first message, and those that may go with it; (how many were tried, how many went)."""
        if self._gates.clock.now_ms() >= self._map_due_ms and self._gated:
            self._find_brokers(topic)
        gate = self._only
        if gate is None:
            return self._produce_one(topic, messages[0], partition, callback)
        return self._produce_chunk(gate, topic, messages, partition, callback)

    def _produce_one(
        self, topic: str, message: dict[str, Any], partition: int, callback: Callback | None
    ) -> tuple[int, int]:
        """Hand over one message of a batch; (1, how many went)."""
        given = message.get("partition")
        try:
            self._produce_general(
                topic,
                message.get("value"),
                message.get("key"),
                partition if given is None else given,
                message.get("callback") or callback,
                0,
                None,
            )
        except QuotaThrottledError:
            raise
        except (BufferError, KafkaException) as error:
            if isinstance(error, KafkaException) and error.args[0].txn_requires_abort():
                raise
            message["_error"] = error.args[0] if isinstance(error, KafkaException) else _queue_full(error)
            return 1, 0
        return 1, 1

    def _produce_chunk(
        self, gate: Gate, topic: str, messages: list[dict[str, Any]], partition: int, callback: Callback | None
    ) -> tuple[int, int]:
        """Hand over as many messages as one grant admits; (how many were tried, how many went)."""
        costs = [settings.cost(messages[0])]
        mark = self._pass(gate, costs[0], messages[0].get("callback") or callback)
        for message in messages[1:]:
            cost = settings.cost(message)
            if gate.left < cost:
                break
            gate.left -= cost
            costs.append(cost)
        chunk = messages[: len(costs)]
        last = {**chunk[-1]}
        if len(costs) > 1:
            mark = self._marked(gate, last.get("callback") or callback)
        if mark is not None:
            last["callback"] = mark
        sent = super().produce_batch(topic, [*chunk[:-1], last], partition, callback)
        if "_error" in last:
            chunk[-1]["_error"] = last["_error"]
        if sent < len(chunk):
            self._gates.give_back(
                gate, sum(cost for cost, message in zip(costs, chunk, strict=True) if "_error" in message)
            )
        return len(chunk), sent


_OPEN: Final = _OpenGate()


def _queue_full(error: Exception) -> KafkaError:
    return KafkaError(KafkaError._QUEUE_FULL, str(error))  # noqa: SLF001 - confluent_kafka's name for the code


def _take_stance(me: "weakref.ref[Producer]", gated: bool) -> None:
    """Put the gate before a producer's doors, or take it away; called from callbacks, and before there are any."""
    producer = me()
    if producer is not None and producer._gated != gated:  # noqa: SLF001 - its own module
        producer._step(gated)  # noqa: SLF001 - as above
