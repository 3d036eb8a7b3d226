"""Faults on demand, as applications meet them."""

import time

import confluent_kafka
import pytest
from confluent_kafka import KafkaError, KafkaException, Producer

import kclient_quota
from kclient_quota.broker import EmbeddedBroker
from kclient_quota.broker.command import main
from kclient_quota.errors import ConfigError
from kclient_quota.wire.messages import ListGroupsRequest

PRODUCE = 0


def produced(broker, topic="t", client_id="c", **config):
    """Error and seconds of one message."""
    errors, started = [], time.monotonic()
    settings = {"message.timeout.ms": 60_000, "log_level": 0, "retries": 0, "client.id": client_id, "linger.ms": 0}
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, **settings, **config})
    producer.produce(topic, b"x", partition=0, on_delivery=lambda error, _: errors.append(error))
    producer.flush(60)
    return errors[0], time.monotonic() - started


@pytest.fixture(scope="module")
def running():
    with EmbeddedBroker(topics={"t": 1, "u": 1}) as broker:
        yield broker


@pytest.fixture
def broker(running):
    running.faults.clear()
    running.faults.seed(1)
    yield running
    running.faults.clear()


def end_of(broker, topic):
    return broker._running().cluster.topics[topic].partitions[0].log.end_offset


def test_an_error_for_one_topic_and_so_often(broker):
    before = end_of(broker, "t")
    broker.faults.inject_error("Produce", "TOPIC_AUTHORIZATION_FAILED", topic="t", count=1)
    assert produced(broker, "u")[0] is None
    assert produced(broker)[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    assert end_of(broker, "t") == before
    assert produced(broker)[0] is None


def test_a_lost_answer_after_which_the_record_is_there(broker):
    before = end_of(broker, "t")
    broker.faults.disconnect_on("Produce", is_handled=True, count=1)
    assert produced(broker, retries=5, **{"enable.idempotence": True})[0] is None
    assert end_of(broker, "t") == before + 1, "the repetition was recognised"
    broker.faults.disconnect_on("Produce", client_id="c", count=1)
    assert produced(broker)[0] is not None
    assert end_of(broker, "t") == before + 1


@pytest.mark.parametrize("library", [confluent_kafka, kclient_quota])
def test_a_transaction_that_may_take_up_no_partition_ends_at_once(broker, library):
    """The answer had no room for the error and was an empty success: librdkafka asked 700 times a second."""
    fault = broker.faults.inject_error("AddPartitionsToTxn", "TRANSACTIONAL_ID_AUTHORIZATION_FAILED")
    producer = library.Producer(
        {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": library.__name__, "log_level": 0}
    )
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce("t", b"x")
    with pytest.raises(KafkaException) as caught:
        producer.commit_transaction(30)
    assert caught.value.args[0].code() == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert caught.value.args[0].fatal()
    assert fault.struck == 1


def test_a_delay_of_one_client_holds_up_nobody_else(broker):
    broker.faults.delay("Produce", 800, client_id="slow")
    assert produced(broker, client_id="slow")[1] >= 0.8
    broker.faults.clear()
    fault, errors = broker.faults.delay("Produce", 3_600_000, client_id="slow"), []
    slow = Producer({"bootstrap.servers": broker.bootstrap_servers, "client.id": "slow", "log_level": 0})
    slow.produce("t", b"x", partition=0, on_delivery=lambda error, _: errors.append(error))
    deadline = time.monotonic() + 60
    while not fault.struck:
        assert time.monotonic() < deadline
        slow.poll(0.05)
    assert produced(broker, client_id="quick")[0] is None
    slow.poll(0)
    assert errors == []
    slow.purge()
    slow.flush(60)


def test_a_client_in_a_black_hole(broker):
    fault = broker.faults.blackhole_client("lost", api="Produce")
    deadline = time.monotonic() + 60
    while not fault.struck:  # a message may time out before it was sent, on a machine that stands still
        assert time.monotonic() < deadline
        error, _ = produced(broker, client_id="lost", **{"message.timeout.ms": 700})
        assert error.code() == KafkaError._MSG_TIMED_OUT
    assert produced(broker)[0] is None


def test_a_throttle_of_hours_without_any_quota(broker):
    broker.faults.throttle("Produce", 12 * 3_600_000, count=1)
    assert produced(broker)[0] is None
    assert [seen.throttle_time_ms for seen in broker.requests if seen.api_key == PRODUCE][-1] == 12 * 3_600_000


def test_chance_repeats_itself_from_its_seed(broker):
    def struck():
        broker.faults.clear()
        broker.faults.seed(7)
        broker.faults.delay_on("ListGroups", 1, probability=0.5)
        return [broker.faults.take(16, "c", ListGroupsRequest(), lambda _: None) is not None for _ in range(50)]

    first = struck()
    assert first == struck()
    assert 10 < sum(first) < 40


@pytest.mark.parametrize(
    ("verb", "arguments", "message"),
    [
        ("inject_error", ("Produse", "UNKNOWN_TOPIC_OR_PARTITION"), "there is no API 'Produse'"),
        ("inject_error", ("Produce", "NO_SUCH"), "there is no error 'NO_SUCH'"),
        ("delay_on", ("Produce", 0), "delay_ms must be at least 1"),
        ("delay_on", ("Produce", "200ms"), "delay_ms must be a whole number, not '200ms'"),
        ("delay_on", (["Produce", "Fetch"], 5), "api must be Kafka's name or number of an API, not "),
    ],
)
def test_a_fault_that_is_none(broker, verb, arguments, message):
    with pytest.raises(ConfigError, match=message):
        getattr(broker.faults, verb)(*arguments)
    with pytest.raises(ConfigError, match="probability"):
        broker.faults.delay_on("Produce", 5, probability=1.5)
    for choice, value in (("client_id", ["a", "b"]), ("topic", 5), ("count", "3"), ("probability", "0.1")):
        with pytest.raises(ConfigError, match=f"{choice} must be "):
            broker.faults.delay_on("Produce", 5, **{choice: value})
    with pytest.raises(ConfigError, match="there is no choice clientid"):
        broker.faults.delay_on("Produce", 5, clientid="x")


def test_faults_of_a_file(broker, tmp_path, capsys):
    broker.faults.load(
        {
            "seed": 3,
            "faults": [
                {"inject_error": {"api": "Produce", "error": "INVALID_RECORD", "count": 1}},
                {"delay_on": {"delay_ms": 5}},
                {"blackhole_client": {"client_id": "x"}},
            ],
        }
    )
    assert produced(broker)[0].code() == KafkaError.INVALID_RECORD
    for text, message in (
        (b"[1]", "write a mapping"),
        (b"faults: [{wait: {}}]", "entry 1: there is no wait"),
        (b"faults: 3", "write a list of faults"),
        (b"faults: {delay_on: {api: Fetch, delay_ms: 1}}", "write a list of faults"),
        (b"seed: q", "seed q: write a whole number"),
        (b"{1: 2, a: 3}", "there is no 1"),
        (b"faults: [{delay_on: {api: Fetch, delay_ms: x}}]", "entry 1: delay_on"),
        (b"faults: [{delay_on: {api: Fetch, delay_ms: 5, count: x}}]", "entry 1: delay_on"),
        (b"\xff\xfe", "invalid start byte"),
        (b"seed: 2026-13-01", "month must be in 1..12"),
    ):
        path = tmp_path / "faults.yaml"
        path.write_bytes(text)
        assert main(["--port", "0", "--faults", str(path)]) == 2
        assert message in capsys.readouterr().err
