"""`Producer`: a drop-in for confluent_kafka's that admits messages only when their broker may take them."""

import sys
import threading
import weakref
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

import confluent_kafka
from confluent_kafka import KafkaError, Message

from kclient_quota.clients import producer_settings as settings
from kclient_quota.clients.admission import RECORD_BYTES, BrokerQuotaState, Gate
from kclient_quota.clients.gate import ProducerGates
from kclient_quota.config import Backoff, split
from kclient_quota.errors import QuotaThrottledError
from kclient_quota.metrics import MetricName

SLICE_MS: Final = 100
"""Longest poll of a waiting call: how soon Ctrl-C, a raised quota and the heartbeat are noticed."""

_Plain = confluent_kafka.Producer
_DOORS: Final = ("produce", "produce_batch", "poll", "flush")
"""What is confluent_kafka's own again while no quota applies."""

_get_ident = threading.get_ident

Callback = Callable[[KafkaError | None, Message], Any]


class Producer(_Plain):
    """confluent_kafka's Producer under a quota.

    While a quota applies, `produce()` waits until the message's broker may take it (`quota.backoff=block`, up to
    `max.block.ms`) or raises `QuotaThrottledError` (`raise`); callbacks are served meanwhile. While none applies it is
    confluent_kafka's own `produce`.

    Args:
        config: confluent_kafka's configuration and, all optional, ours (see `kclient_quota.config.QUOTA_KEYS`).
        heartbeat: a consumer to keep in its group while `produce()` waits.
        kwargs: further configuration, as confluent_kafka takes it.

    Raises:
        ConfigError: one of our keys is misspelt or cannot be used.
    """

    def __init__(self, config: Mapping[str, Any] | None = None, /, *, heartbeat: Any = None, **kwargs: Any) -> None:
        conf, ours = split({**(config or {}), **kwargs})
        finder = settings.limit_finder(ours, conf)
        limit = finder.find()
        self._max_block_ms = ours.max_block_ms
        self._raises = ours.backoff is Backoff.RAISE
        self._keep_alive = settings.keep_alive(heartbeat)
        self._default_callback: Callback | None = conf.get("on_delivery")
        self._serving: set[int] = set()
        self._old_polls: dict[int, tuple[int, int]] = {}
        gates = ProducerGates(ours.backoff, str(conf.get("client.id", "rdkafka")), limit)
        self._gates = gates
        self._lock = gates.lock
        self._gated = True
        self._only = gates.only
        conf = settings.with_defaults(conf, limit)
        super().__init__(settings.with_callbacks(conf, gates))
        me = weakref.ref(self)
        gates.on_stance = partial(_take_stance, me)
        watch = settings.watch(finder, gates)
        gates.ask_soon = watch.ask_soon
        self._stop_watch = weakref.finalize(self, watch.close)
        gates.review()
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
            QuotaThrottledError: after `max.block.ms`, at once with `quota.backoff=raise`, and inside a callback.
        """
        cost = RECORD_BYTES
        if value is not None:
            cost += len(value)
        if key is not None:
            cost += len(key)
        if headers:
            cost += _header_bytes(headers)
        if callback is None:
            callback = on_delivery
        gate = self._only
        with self._lock:
            left = gate.left - cost
            # The last message of a grant carries the mark by which deliveries are followed.
            if left >= cost:
                gate.left = left
                gate_open = True
            else:
                gate_open = False
        if not gate_open:
            callback = self._pass(gate, cost, callback)
        try:
            _produce(self, topic, value, key, partition, callback, None, timestamp, headers)
        except BaseException:
            self._gates.give_back(gate, cost)
            raise

    def poll(self, timeout: float = -1) -> int:
        """As confluent_kafka's."""
        ident = _get_ident()
        self._enter(ident)
        try:
            return super().poll(timeout)
        finally:
            self._serving.discard(ident)

    def flush(self, timeout: float = -1) -> int:
        """As confluent_kafka's."""
        ident = _get_ident()
        self._enter(ident)
        try:
            return super().flush(timeout)
        finally:
            self._serving.discard(ident)

    def metrics(self) -> dict[MetricName, float]:
        return self._gates.metrics()

    def quota_state(self) -> dict[int, BrokerQuotaState]:
        return self._gates.state()

    # Waiting ------------------------------------------------------------------------------------------------------

    def _pass(self, gate: Gate, cost: int, callback: Callback | None) -> Callback | None:
        """Wait for admission; the callback to hand over with the message."""
        gates = self._gates
        wait_ms = gates.admit(gate, cost)
        if wait_ms:
            self._wait(gate, cost, wait_ms)
        if gate.left >= cost:
            return callback
        return partial(_delivered, gates, gate, gate.handed, callback or self._default_callback)

    def _wait(self, gate: Gate, cost: int, wait_ms: int) -> None:
        gates = self._gates
        clock = gates.clock
        deadline_ms = clock.now_ms() + self._max_block_ms
        if self._raises or self._in_callback():
            raise _throttled(wait_ms)
        gate.waiting += 1
        try:
            while wait_ms:
                remaining_ms = deadline_ms - clock.now_ms()
                if remaining_ms <= 0:
                    raise _throttled(wait_ms)
                self._serve(min(wait_ms, remaining_ms, SLICE_MS))
                wait_ms = gates.admit(gate, cost)
        finally:
            gate.waiting -= 1

    def _serve(self, wait_ms: int) -> None:
        """Let time pass as an application that polls does."""
        self.poll(wait_ms / 1000)
        if not len(self):
            self._gates.settle_all()
        if self._keep_alive is not None:
            self._keep_alive()

    # Callbacks must never poll: librdkafka's binding aborts the process ------------------------------------------

    def _enter(self, ident: int) -> None:
        if ident in self._serving:
            raise RuntimeError("a callback cannot poll or flush its own producer")
        self._old_polls.pop(ident, None)
        self._serving.add(ident)

    def _in_callback(self) -> bool:
        ident = _get_ident()
        if ident in self._serving:
            return True
        old = self._old_polls.get(ident)
        frame = sys._getframe()
        while old is not None and frame is not None:
            if (id(frame), frame.f_lasti) == old:
                return True
            frame = frame.f_back
        return False


_produce = _Plain.produce


def _delivered(gates: ProducerGates, gate: Gate, handed: int, callback: Callback | None, error: Any, message: Any) -> None:
    gates.settled(gate, handed)
    if callback is not None:
        callback(error, message)


def _throttled(wait_ms: int) -> QuotaThrottledError:
    return QuotaThrottledError(
        f"the broker's quota is used up: try again in {wait_ms} ms, or raise max.block.ms or the quota",
        retry_after_ms=wait_ms,
    )


def _header_bytes(headers: Any) -> int:
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    return sum(len(name) + (len(value) if value else 0) + 2 for name, value in pairs)


def _take_stance(me: "weakref.ref[Producer]", gated: bool) -> None:
    """Put the gate before a producer's doors, or take it away."""
    producer = me()
    if producer is None or producer._gated == gated:
        return
    cls = type(producer)
    if gated:
        producer._old_polls = {ident: (id(frame), frame.f_lasti) for ident, frame in sys._current_frames().items()}
        producer._gated = True
        producer.__class__ = cls.__mro__[1]
    else:
        producer._gated = False
        producer.__class__ = _aside(cls)


_ASIDE: "weakref.WeakKeyDictionary[type[Producer], type[Producer]]" = weakref.WeakKeyDictionary()


def _aside(cls: type[Producer]) -> type[Producer]:
    """`cls` with confluent_kafka's own doors, except where the user has overridden them."""
    found = _ASIDE.get(cls)
    if found is None:
        doors = {door: getattr(_Plain, door) for door in _DOORS if getattr(cls, door) is getattr(Producer, door)}
        names = {"__module__": cls.__module__, "__qualname__": cls.__qualname__, "__doc__": cls.__doc__}
        found = _ASIDE[cls] = type(cls)(cls.__name__, (cls,), {**names, **doors})
    return found
