"""The pytest plug-in as a stranger's tests use it: in a test file and a process of their own."""

import pytest

from kclient_quota import Producer

pytest_plugins = ["pytester"]

SERVICE = """
    import pytest
    from kclient_quota import Producer
    from confluent_kafka import Producer as PlainProducer

    def send(broker, count=40, producer=Producer, **more):
        conf = {"bootstrap.servers": broker.bootstrap_servers, "client.id": "shop", **more}
        sender = producer(conf)
        for number in range(count):
            sender.produce("orders", b"x" * 1000, key=str(number), headers={"number": str(number)})
        assert sender.flush(60) == 0
        return sender
"""


def run(pytester: pytest.Pytester, tests: str, *options: str) -> pytest.RunResult:
    pytester.makepyfile(SERVICE + tests)
    return pytester.runpytest_subprocess("-q", "--strict-markers", "-p", "no:cacheprovider", *options)


TESTS = """
    @pytest.mark.kafka_quota(client_id="shop", producer_byte_rate=20_000)
    def test_marked(kafka_broker):
        send(kafka_broker)
        assert [record.key for record in kafka_broker.records("orders")] == [b"%d" % n for n in range(40)]
        assert kafka_broker.records("orders")[7].headers == (("number", b"7"),)

    @pytest.mark.kafka_quota(producer_byte_rate=15_000)
    @pytest.mark.kafka_quota(client_id="shop", producer_byte_rate=None)
    def test_everybody_and_one_by_name(kafka_broker):
        send(kafka_broker, 200, PlainProducer)
        kafka_broker.assert_throttled("shop", api="Produce", at_least_ms=100)
        with pytest.raises(AssertionError, match="client 'other'.*Produce of 'shop'"):
            kafka_broker.assert_throttled("other")

    def test_unmarked(kafka_broker):
        send(kafka_broker)
        kafka_broker.assert_not_throttled()
        with pytest.raises(ValueError, match="no topic 'invoices'.*orders"):
            kafka_broker.records("invoices")

    def test_scripted(kafka_broker):
        kafka_broker.throttle_next(0, 700, client_id="shop")
        send(kafka_broker, 1)
        with pytest.raises(AssertionError, match="was throttled 1 times, for 700 ms at most"):
            kafka_broker.assert_not_throttled("shop")

    @pytest.mark.parametrize("brokers", [1, 3])
    def test_many(kafka_broker_factory, brokers):
        send(kafka_broker_factory(brokers=brokers, topics={"orders": 6}))
"""


def test_marks_records_and_assertions(pytester: pytest.Pytester) -> None:
    run(pytester, TESTS).assert_outcomes(passed=6)


def test_side_by_side(pytester: pytest.Pytester) -> None:
    pytest.importorskip("xdist")
    run(pytester, TESTS, "-n", "3").assert_outcomes(passed=6)


@pytest.mark.parametrize(
    ("mark", "said"),
    [
        ("20_000", "takes names"),
        ("producer_bite_rate=1", "there is no quota producer_bite_rate"),
        ("client_id='shop', producer_byte_rate=-1", "producer_byte_rate"),
    ],
    ids=["position", "misspelt", "negative"],
)
def test_a_wrong_mark_is_said_in_words(pytester: pytest.Pytester, mark: str, said: str) -> None:
    done = run(
        pytester, f"\n    @pytest.mark.kafka_quota({mark})\n    def test_it(kafka_broker):\n        raise SystemExit\n"
    )
    done.assert_outcomes(errors=1)
    done.stdout.fnmatch_lines([f"@pytest.mark.kafka_quota*{said}*"])
    done.stdout.no_fnmatch_line("*kclient_quota/*.py:*")


def test_records_leave_out_what_was_aborted_and_keep_what_is_doubled(kafka_broker) -> None:
    conf = {"bootstrap.servers": kafka_broker.bootstrap_servers, "transactional.id": "t"}
    with Producer(conf) as producer:
        producer.init_transactions(60)
        for name, ends in (("kept", producer.commit_transaction), ("dropped", producer.abort_transaction)):
            producer.begin_transaction()
            producer.produce("orders", name, headers=[("why", None)])
            producer.flush(60)
            ends(60)
        producer.begin_transaction()
        producer.produce("orders", "open")
        producer.flush(60)
        assert [record.value for record in kafka_broker.records("orders")] == [b"kept"]
        every = kafka_broker.records("orders", uncommitted=True)
        assert [record.value for record in every] == [b"kept", b"dropped", b"open"]
        assert every[0].headers == (("why", None),)
        producer.abort_transaction(60)
