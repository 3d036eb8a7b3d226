"""Stepping aside and knowing where a callback is, without a broker."""

import gc
import sys
import threading
import weakref
from typing import Any

import confluent_kafka
import pytest

from kclient_quota.clients.aside import DOORS, CallbackGuard, Where
from kclient_quota.clients.producer import Producer
from kclient_quota.clients.stepping_aside import aside

NOWHERE = {"bootstrap.servers": "127.0.0.1:1", "log_level": 0}
OFF = {**NOWHERE, "quota.backoff": "off"}
LIMITED = {**NOWHERE, "producer_byte_rate": 1_000_000}


def test_a_producer_that_nothing_limits_has_confluent_kafkas_own_doors() -> None:
    producer = Producer(OFF)
    assert isinstance(producer, Producer)
    assert type(producer).__name__ == "Producer"
    for door in ("produce", "produce_batch", "poll", "flush"):
        assert getattr(type(producer), door) is getattr(confluent_kafka.Producer, door)
    assert type(producer).close is Producer.close
    producer.close()


def test_a_producer_with_a_limit_has_ours() -> None:
    producer = Producer(LIMITED)
    assert type(producer) is Producer
    producer.purge()
    producer.close()


def test_it_steps_in_and_aside_again() -> None:
    producer = Producer(OFF)
    producer._step(gated=True)
    assert type(producer) is Producer
    assert producer._only is not None
    producer._step(gated=False)
    assert type(producer).produce is confluent_kafka.Producer.produce
    producer.close()


def test_a_subclass_keeps_the_doors_it_overrides() -> None:
    seen: list[Any] = []

    class Mine(Producer):
        def produce(self, *args: Any, **kwargs: Any) -> None:
            seen.append(args)
            super().produce(*args, **kwargs)

    producer = Mine(OFF)
    for _ in range(3):
        producer.produce("t", b"v")
    assert len(seen) == 3
    assert isinstance(producer, Mine)
    assert type(producer).poll is confluent_kafka.Producer.poll
    assert len(producer) >= 3
    producer.purge()
    producer.close()


def test_the_class_aside_is_made_once() -> None:
    made = [aside(Producer, Producer, confluent_kafka.Producer, DOORS) for _ in range(2)]
    assert made[0] is made[1]


def test_a_producer_that_is_dropped_is_gone_without_a_collector() -> None:
    gc.disable()
    try:
        for conf in (OFF, LIMITED):
            producer = Producer(conf)
            alive = weakref.ref(producer)
            del producer
            assert alive() is None
    finally:
        gc.enable()


def test_a_marked_poll_is_inside_and_cannot_be_nested() -> None:
    guard = CallbackGuard()
    assert guard.where() is Where.OUTSIDE
    with guard:
        assert guard.where() is Where.INSIDE
        with pytest.raises(RuntimeError, match="callback"), guard:
            pass
    assert guard.where() is Where.OUTSIDE


class OldPoll:
    """A poll that began before the producer stepped in: the guard does not see it begin."""

    def __init__(self, guard: CallbackGuard) -> None:
        self.guard = guard
        self.found: list[Where] = []

    def poll(self, *callbacks: Any) -> None:
        for callback in callbacks:
            callback()

    def our_callback(self) -> None:
        # librdkafka's C code has no frame: the caller of poll() is what a real callback sees as its own caller.
        self.guard.called_from(sys._getframe(2))
        self.guard.stepped_in()

    def their_callback(self) -> None:
        self.found.append(self.guard.where())


def test_a_poll_from_before_is_recognized_by_its_caller() -> None:
    old = OldPoll(CallbackGuard())
    old.poll(old.our_callback, old.their_callback)
    assert old.found == [Where.INSIDE]
    assert old.guard.where() is Where.OUTSIDE


def test_other_threads_are_unsure_until_they_have_polled() -> None:
    old = OldPoll(CallbackGuard())
    old.poll(old.our_callback)
    seen: list[Where] = []

    def elsewhere() -> None:
        seen.append(old.guard.where())
        with old.guard:
            seen.append(old.guard.where())
        seen.append(old.guard.where())

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert seen == [Where.UNSURE, Where.INSIDE, Where.OUTSIDE]
