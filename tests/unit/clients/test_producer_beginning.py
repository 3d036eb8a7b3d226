"""The first message of an idempotent producer: librdkafka is asked who leads until something comes of it."""

import pytest
from confluent_kafka import KafkaError, KafkaException

from kclient_quota import Producer
from kclient_quota.clients.producer.sender.beginning import ASK_MS, FIRST_MS, MOST_ASKS, Beginning
from kclient_quota.testing.clock import ManualClock

CONF = {
    "bootstrap.servers": "127.0.0.1:1",
    "log_level": 0,
    "quota.backoff": "off",
    "enable.metrics.push": False,
}


class Asked:
    def __init__(self, error=None):
        self.calls = []
        self._error = error

    def __call__(self, topic, timeout_s):
        self.calls.append((topic, timeout_s))
        if self._error is not None:
            raise self._error


def begun(clock=None):
    beginning = Beginning(clock or ManualClock(), is_wanted=True)
    beginning.begin("orders")
    return beginning


def test_nobody_is_asked_before_there_is_a_message():
    beginning, asked = Beginning(ManualClock(), is_wanted=True), Asked()
    beginning.ask(asked, 1_000)
    assert (beginning.is_under_way, beginning.is_due, beginning.is_wanted, asked.calls) == (False, False, True, [])
    assert beginning.slice_ms(100) == 100


def test_a_few_times_each_after_twice_as_long_and_never_for_long():
    clock = ManualClock()
    beginning, asked = begun(clock), Asked(KafkaException(KafkaError(KafkaError._TRANSPORT)))
    waits = []
    while beginning.is_under_way:
        waits.append(beginning.slice_ms(10_000))
        clock.sleep_ms(waits[-1] - 1)
        assert (beginning.is_due, beginning.slice_ms(10_000)) == (False, 1)
        clock.sleep_ms(1)
        assert (beginning.is_due, beginning.slice_ms(10_000)) == (True, 1)
        beginning.ask(asked, 1_000)
    assert waits == [FIRST_MS << number for number in range(MOST_ASKS)]
    assert asked.calls == [("orders", ASK_MS / 1000)] * MOST_ASKS
    assert beginning.slice_ms(100) == 100


def test_never_for_longer_than_there_is_time():
    beginning, asked = begun(), Asked()
    beginning.ask(asked, 40)
    beginning.ask(asked, 0)
    assert asked.calls == [("orders", 0.04)]


def test_what_a_signals_handler_raises_meanwhile_is_raised():
    beginning, asked = begun(), Asked(TimeoutError("alarm"))
    with pytest.raises(TimeoutError):
        beginning.ask(asked, 1_000)


def test_an_answer_that_cannot_be_told_as_the_interpreter_ends_has_been_heard_all_the_same():
    beginning, asked = begun(), Asked(ImportError("Module not found when looking up confluent_kafka.admin"))
    beginning.ask(asked, 1_000)
    assert len(asked.calls) == 1


def test_no_more_once_something_has_come():
    beginning = begun()
    beginning.over()
    assert not beginning.is_under_way


def test_what_never_got_to_librdkafka_is_no_first_message():
    beginning = Beginning(ManualClock(), is_wanted=True)
    beginning.over()
    assert beginning.is_wanted


class Watched(Producer):
    """One that notes what it asks, and asks nobody: its messages are dropped, so that nobody waits for them."""

    def __init__(self, **changes):
        self.asked = Asked()
        super().__init__({**CONF, **changes})

    def ask_librdkafka(self, topic, timeout_s):
        self.asked(topic, timeout_s)
        self.purge(blocking=False)


WAITS = {
    "flush": lambda producer: producer.flush(10),
    # one poll() ends as soon as librdkafka tells that nobody listens there
    "poll": lambda producer: [producer.poll(1) for _ in range(10) if not producer.asked.calls],
}


@pytest.mark.parametrize("wait", WAITS)
@pytest.mark.parametrize("doors", ["produce", "produce_batch"])
def test_who_waits_for_the_first_message_asks_about_its_topic(wait, doors):
    producer = Watched()
    if doors == "produce":
        producer.produce("orders", b"x")
        producer.produce("others", b"x")
    else:
        producer.produce_batch("orders", [{"value": b"x"}])
    WAITS[wait](producer)
    assert producer.asked.calls == [("orders", ASK_MS / 1000)]


@pytest.mark.parametrize("changes", [{"enable.idempotence": False}, {"transactional.id": "x"}, {"acks": 1}])
def test_who_needs_no_id_asks_nobody(changes):
    producer = Watched(**changes)
    if "transactional.id" not in changes:
        producer.produce("orders", b"x")
    producer.flush(0.02)
    producer.poll(0.02)
    assert producer.asked.calls == []


def test_what_has_come_before_anybody_would_have_asked_has_come():
    producer = Watched()
    producer.produce("orders", b"x")
    producer.purge()
    producer.flush(1)  # with nothing left that could be waited for
    assert not producer._kq_beginning.is_under_way


def test_a_look_asks_nobody():
    producer = Watched()
    producer.produce("orders", b"x")
    producer.poll(0)
    producer.flush(0)
    assert producer.asked.calls == []


def test_messages_go_straight_after_the_first():
    producer = Watched()
    assert producer._kq_outbox.is_watched
    producer.produce("orders", b"x")
    assert not producer._kq_outbox.is_watched
