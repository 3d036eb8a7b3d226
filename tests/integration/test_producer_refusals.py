"""What confluent_kafka's `produce()` refuses is refused there under a quota too, and costs nobody behind it a thing."""

import ctypes
import time
from collections.abc import Callable
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from kclient_quota import Producer
from kclient_quota.broker import EmbeddedBroker
from kclient_quota.clients.producer.sender import answers

MOST_BYTES = 2_000
OVERHEAD = 36


def header(count: int, nbytes: int) -> dict[str, Any]:
    return {"headers": [("h", b"x" * nbytes)] * count}


REFUSED: dict[str, dict[str, Any]] = {
    "a timestamp beyond 64 bits": {"timestamp": 2**63},
    "a partition beyond 32 bits": {"partition": 2**31},
    "a topic that is no UTF-8": {"topic": "\ud800"},
    "a value that is no UTF-8": {"value": "\ud800"},
    "a key that is no UTF-8": {"key": "\ud800"},
    "a value a byte too long": {"value": b"x" * (MOST_BYTES - OVERHEAD + 1)},
    "key and value a byte too long": {"value": b"x" * 1_000, "key": b"k" * (MOST_BYTES - OVERHEAD - 1_000 + 1)},
    "headers too long": header(1, 20_000),
    "many headers, one byte too long": {"value": b"x" * 1_053, **header(3, 300)},
    "a text of two bytes a letter, too long": {"value": "ä" * 1_000},
}
TAKEN: dict[str, dict[str, Any]] = {
    "a value that just fits": {"value": b"x" * (MOST_BYTES - OVERHEAD)},
    "many headers that just fit": {"value": b"x" * 1_052, **header(3, 300)},
    "a header without a value": {"value": b"x" * 1_961, "headers": [("h", None)]},
    "the last timestamp": {"timestamp": 2**63 - 1},
}


def produced(make: Callable[[dict[str, Any]], Any], servers: str, given: dict[str, Any]) -> tuple[Any, list[Any]]:
    """What `produce()` raised, and what became of the messages before, of it, and behind it."""
    producer = make({"bootstrap.servers": servers, "client.id": "app", "message.max.bytes": MOST_BYTES})
    reports: list[Any] = []

    def on_delivery(error: KafkaError | None, message: Any) -> None:
        reports.append((message.key() if given.get("key") is None else None, error and error.name()))

    refusal = None
    producer.produce("t", b"before", on_delivery=on_delivery)
    try:
        producer.produce(**{"topic": "t", "value": b"odd", **given}, on_delivery=on_delivery)
    except KafkaException as error:
        refusal = error.args[0].name()
    except Exception as error:  # noqa: BLE001 - whatever it is, both raise it
        refusal = repr(error)
    for _ in range(3):
        producer.produce("t", b"behind", on_delivery=on_delivery)
    assert producer.flush(60) == 0
    return refusal, reports


@pytest.mark.parametrize("given", [*REFUSED.values(), *TAKEN.values()], ids=[*REFUSED, *TAKEN])
def test_a_message_is_refused_as_by_the_plain_producer(broker: EmbeddedBroker, given: dict[str, Any]) -> None:
    broker.create_topic("t", 1)
    broker.set_quota(client_id="app", producer_byte_rate=20_000)
    plain = produced(confluent_kafka.Producer, broker.bootstrap_servers, given)
    ours = produced(Producer, broker.bootstrap_servers, given)
    assert ours == plain
    assert (ours[0] is None) == (given in TAKEN.values())


@pytest.mark.parametrize("more", [0, 1], ids=["fits", "never fits"])
def test_what_librdkafka_never_has_room_for_is_refused_at_once(broker: EmbeddedBroker, more: int) -> None:
    """It stood before all others until its time was over: five minutes."""
    broker.set_quota(client_id="app", producer_byte_rate=20_000)
    seen = []
    for make in (confluent_kafka.Producer, Producer):
        producer = make(
            {"bootstrap.servers": broker.bootstrap_servers, "client.id": "app", "queue.buffering.max.kbytes": 1}
        )
        refusal = None
        try:
            producer.produce("orders", b"x" * (1_024 + more), b"key" * 100, headers=[("h", b"x" * 100)])
        except BufferError as error:
            refusal = str(error)
        left = producer.flush(10)
        producer.produce("orders", b"behind")
        seen.append((refusal, left, producer.flush(10)))
        producer.close()
    assert seen[0] == seen[1] == ("Local: Queue full" if more else None, 0, 0)


def test_headers_that_are_no_utf8_are_refused(broker: EmbeddedBroker) -> None:
    """confluent_kafka's own producer ends the process for them."""
    broker.set_quota(client_id="app", producer_byte_rate=20_000)
    with Producer({"bootstrap.servers": broker.bootstrap_servers, "client.id": "app"}) as producer:
        for headers in ([("\ud800", b"")], [("h", "\ud800")], {"\ud800": "x"}):
            with pytest.raises(UnicodeEncodeError):
                producer.produce("t", b"v", headers=headers)
        producer.produce("t", b"v")
        assert producer.flush(60) == 0


def read(broker: EmbeddedBroker, topic: str) -> list[tuple[Any, ...]]:
    reader = confluent_kafka.Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": topic})
    reader.assign([TopicPartition(topic, 0, 0)])
    messages = reader.consume(23, 60)
    reader.close()
    return [(message.value(), message.key(), message.headers()) for message in messages]


@pytest.mark.parametrize(
    "odd",
    [
        {"value": (ctypes.c_char * 3)(*b"odd")},
        {"value": b"odd", "key": (ctypes.c_char * 3)(*b"key")},
        {"value": b"odd", "headers": {b"name": "x", None: None}},
        {"value": b"odd", "headers": [(1, b"x")]},
    ],
    ids=["value", "key", "names in a dict", "a name in a list"],
)
def test_what_c_takes_for_bytes_or_for_a_name_waits_in_its_place(broker: EmbeddedBroker, odd: dict[str, Any]) -> None:
    """It went straight to librdkafka, past what was produced before it and past the quota: each array of numpy did."""
    broker.set_quota(client_id="app", producer_byte_rate=200_000)
    stored = []
    for make, topic in ((confluent_kafka.Producer, "plain"), (Producer, "ours")):
        broker.create_topic(topic, 1)
        producer = make({"bootstrap.servers": broker.bootstrap_servers, "client.id": "app"})
        producer.produce(topic, b"first")
        assert producer.flush(60) == 0
        for message in (*[{"value": b"before" * 100}] * 20, odd, {"value": b"after"}):
            producer.produce(topic, **message)
        assert producer.flush(60) == 0
        producer.close()
        stored.append(read(broker, topic))
    assert [value for value, _, _ in stored[0]][-2:] == [b"odd", b"after"]
    assert stored[1] == stored[0]


def test_who_hears_of_no_report_hears_of_a_topic_that_is_missing(
    broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All were taken, and failed: who gives no callback, and heeds what `produce()` raises, lost them unheard."""
    broker.set_quota(client_id="app", producer_byte_rate=200_000)
    monkeypatch.setattr(answers, "NO_TOPIC_MS", 60_000)
    heard = []
    for make in (confluent_kafka.Producer, Producer):
        conf = {"allow.auto.create.topics": False, "topic.metadata.propagation.max.ms": 100}
        producer = make({"bootstrap.servers": broker.bootstrap_servers, "client.id": "app", **conf})
        producer.produce("missing", b"v")
        assert producer.flush(60) == 0
        producer.produce("orders", b"v")
        raised: list[str] = []
        until = time.monotonic() + 30
        while not raised and time.monotonic() < until:
            try:
                producer.produce("missing", b"v")
            except KafkaException as error:
                raised.append(str(error.args[0]))
            assert producer.flush(60) == 0
        taken = producer.produce_batch("missing", [{"value": b"v"} for _ in range(20)])
        heard.append((raised, taken))
        broker.create_topic(f"made-{make.__module__}", 1)
        producer.produce(f"made-{make.__module__}", b"v")
        assert producer.flush(60) == 0
        producer.close()
    assert heard[0] == heard[1]
    assert heard[0][0]


def test_a_batch_with_wrong_headers_is_refused_before_any_of_it_is_sent(broker: EmbeddedBroker) -> None:
    """Who produced the batch again, headers mended, had its first messages twice."""
    broker.set_quota(client_id="app", producer_byte_rate=200_000)
    broker.create_topic("t", 1)
    conf = {"bootstrap.servers": broker.bootstrap_servers, "client.id": "app", "message.max.bytes": MOST_BYTES}
    heard = []
    for make in (confluent_kafka.Producer, Producer):
        producer = make(conf)
        with pytest.raises(ValueError, match="Invalid headers at index 1"):
            producer.produce_batch("t", [{"value": b"fine"}, {"value": b"wrong", "headers": [("name", 1)]}])
        assert len(producer) == 0
        large: list[dict[str, Any]] = [{"value": b"x" * MOST_BYTES}, {"value": b"fine"}]
        taken = producer.produce_batch("t", large)
        heard.append((taken, [str(message.get("_error")) for message in large]))
        assert producer.flush(60) == 0
        producer.close()
    assert heard[1] == heard[0]
