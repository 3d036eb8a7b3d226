"""Transactions of confluent-kafka on the embedded broker: commit, abort, fencing, time-outs, offsets."""

import time

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from kclient_quota.broker import EmbeddedBroker

ADD_PARTITIONS_TO_TXN = 24


@pytest.fixture
def broker():
    with EmbeddedBroker(topics={"t": 1, "out": 2}) as running:
        yield running


def transactional(broker, transactional_id="x", **config):
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "transactional.id": transactional_id,
            "log_level": 0,
            **{key.replace("_", "."): value for key, value in config.items()},
        }
    )
    producer.init_transactions(60)
    return producer


def read(broker, isolation="read_committed", topic="out", partitions=2):
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "reader",
            "enable.partition.eof": True,
            "isolation.level": isolation,
        }
    )
    consumer.assign([TopicPartition(topic, index, 0) for index in range(partitions)])
    values, ended, deadline = [], set(), time.monotonic() + 60
    while len(ended) < partitions:
        assert time.monotonic() < deadline
        message = consumer.poll(0.5)
        if message is None:
            continue
        if message.error():
            assert message.error().code() == KafkaError._PARTITION_EOF
            ended.add(message.partition())
        else:
            values.append(message.value().decode())
    consumer.close()
    return sorted(values)


def write(producer, *values):
    producer.begin_transaction()
    for number, value in enumerate(values):
        producer.produce("out", value, partition=number % 2)
    assert producer.flush(60) == 0


def test_committed_records_are_read_and_aborted_ones_are_not(broker):
    producer = transactional(broker)
    write(producer, "a", "b")
    assert read(broker) == []
    assert read(broker, "read_uncommitted") == ["a", "b"]
    producer.commit_transaction(60)
    assert read(broker) == ["a", "b"]
    write(producer, "c", "d")
    producer.abort_transaction(60)
    write(producer, "e")
    producer.commit_transaction(60)
    assert read(broker) == ["a", "b", "e"]
    assert read(broker, "read_uncommitted") == ["a", "b", "c", "d", "e"]


def test_an_open_transaction_holds_up_what_comes_after_it(broker):
    first, second = transactional(broker, "x"), transactional(broker, "y")
    write(first, "a")
    write(second, "b")
    second.commit_transaction(60)
    assert read(broker) == []
    first.abort_transaction(60)
    assert read(broker) == ["b"]


def test_a_waiting_reader_is_woken_by_the_commit(broker):
    producer = transactional(broker)
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap_servers, "group.id": "reader", "fetch.wait.max.ms": 50_000}
    )
    consumer.assign([TopicPartition("out", 0, 0)])
    write(producer, "a")
    assert consumer.poll(0.3) is None
    producer.commit_transaction(60)
    started = time.monotonic()
    message = consumer.poll(60)
    assert message.value() == b"a"
    assert time.monotonic() - started < 45, "of the 50 s that a fetch may be held"
    consumer.close()


def test_a_second_producer_with_the_same_id_fences_the_first(broker):
    first = transactional(broker)
    write(first, "a")
    second = transactional(broker)
    with pytest.raises(KafkaException) as caught:
        first.commit_transaction(60)
    assert caught.value.args[0].fatal()
    write(second, "b")
    second.commit_transaction(60)
    assert read(broker) == ["b"]


def test_a_transaction_that_takes_too_long_is_aborted(broker):
    producer = transactional(broker, transaction_timeout_ms=7000)
    write(producer, "a")
    deadline = time.monotonic() + 60
    while read(broker, "read_uncommitted") != ["a"]:
        assert time.monotonic() < deadline
    write_other = transactional(broker, "y")
    write(write_other, "b")
    write_other.commit_transaction(60)
    while read(broker) != ["b"]:
        assert time.monotonic() < deadline, "the aborted one still holds up the log"
        time.sleep(0.1)
    with pytest.raises(KafkaException):
        producer.commit_transaction(60)


def test_consume_transform_produce_moves_offsets_with_the_records(broker):
    source = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for number in range(20):
        source.produce("t", str(number))
    assert source.flush(60) == 0

    def consumer():
        made = Consumer(
            {
                "bootstrap.servers": broker.bootstrap_servers,
                "group.id": "ctp",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        made.subscribe(["t"])
        return made

    def take(made, count):
        messages = []
        deadline = time.monotonic() + 60
        while len(messages) < count:
            assert time.monotonic() < deadline
            messages += made.consume(count - len(messages), 0.2)
        return messages

    first, producer = consumer(), transactional(broker)
    write(producer, *(m.value() for m in take(first, 10)))
    producer.send_offsets_to_transaction(first.position(first.assignment()), first.consumer_group_metadata(), 60)
    producer.commit_transaction(60)
    write(producer, *(m.value() for m in take(first, 5)))
    producer.send_offsets_to_transaction(first.position(first.assignment()), first.consumer_group_metadata(), 60)
    producer.abort_transaction(60)
    first.close()

    second = consumer()
    assert [int(m.value()) for m in take(second, 10)] == list(range(10, 20))
    second.close()
    assert sorted(map(int, read(broker))) == list(range(10))


def test_a_member_that_has_lost_its_group_may_not_commit_in_a_transaction(broker):
    producer = transactional(broker)
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "g"})
    consumer.subscribe(["t"])
    deadline = time.monotonic() + 60
    while not consumer.assignment():
        assert time.monotonic() < deadline
        consumer.poll(0.05)
    metadata = consumer.consumer_group_metadata()
    consumer.close()
    producer.begin_transaction()
    with pytest.raises(KafkaException, match=r"UNKNOWN_MEMBER_ID|ILLEGAL_GENERATION"):
        producer.send_offsets_to_transaction([TopicPartition("t", 0, 1)], metadata, 60)
    producer.abort_transaction(60)


def test_transactions_on_three_brokers():
    with EmbeddedBroker(brokers=3, topics={"out": 2}) as broker:
        producers = [transactional(broker, f"x{number}") for number in range(4)]
        for number, producer in enumerate(producers):
            write(producer, f"{number}a", f"{number}b")
        for producer in producers[:3]:
            producer.commit_transaction(60)
        producers[3].abort_transaction(60)
        assert read(broker) == ["0a", "0b", "1a", "1b", "2a", "2b"]


def test_who_loses_the_right_to_a_transactional_id_within_a_transaction_is_told_so():
    guarded = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    with EmbeddedBroker(topics={"out": 2}, users={"bob": "secret"}, properties=guarded) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        literal, allow = ResourcePatternType.LITERAL, AclPermissionType.ALLOW
        resources = ((ResourceType.TOPIC, "out"), (ResourceType.TRANSACTIONAL_ID, "x"))
        rights = [AclBinding(kind, name, literal, "User:bob", "*", AclOperation.ALL, allow) for kind, name in resources]
        for created in admin.create_acls(rights).values():
            created.result(60)
        as_bob = {"sasl.mechanism": "PLAIN", "sasl.username": "bob", "sasl.password": "secret"}
        producer = transactional(
            broker,
            **as_bob,
            **{"security.protocol": "SASL_PLAINTEXT", "bootstrap.servers": broker.sasl_bootstrap_servers},
        )
        write(producer, "a")
        producer.commit_transaction(60)
        producer.begin_transaction()
        his = AclBindingFilter(
            ResourceType.TRANSACTIONAL_ID, "x", literal, "User:bob", None, AclOperation.ANY, AclPermissionType.ANY
        )
        (deleted,) = admin.delete_acls([his]).values()
        assert len(deleted.result(60)) == 1
        producer.produce("out", b"b", partition=0)
        with pytest.raises(KafkaException) as caught:
            producer.commit_transaction(30)
        assert caught.value.args[0].code() == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        assert caught.value.args[0].fatal()
        # librdkafka would learn it of the coordinator, too, which it looks for twice a second
        assert sum(seen.api_key == ADD_PARTITIONS_TO_TXN for seen in broker.requests) == 2
