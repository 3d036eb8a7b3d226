"""`group.protocol=consumer` of confluent-kafka on the embedded broker."""

from contextlib import contextmanager

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from kclient_quota.broker import EmbeddedBroker
from kclient_quota.broker.request.controls import IGNORE
from tests.integration.group_members import assigned, fill, until
from tests.integration.rolled_group import roll

CONSUMER_GROUP_HEARTBEAT, JOIN_GROUP = 68, 11


@pytest.fixture
def broker():
    properties = {"group.consumer.heartbeat.interval.ms": "100"}
    with EmbeddedBroker(topics={"t": 4, "u": 2}, properties=properties) as running:
        yield running


@pytest.fixture
def impatient():
    """A broker whose members may be silent for a second and a half only."""
    properties = {"group.consumer.heartbeat.interval.ms": "100", "group.consumer.session.timeout.ms": "1500"}
    with EmbeddedBroker(topics={"t": 4}, properties=properties) as running:
        yield running


@contextmanager
def consumer(broker, *topics, protocol="consumer", on_commit=None, **config):
    made = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "g",
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "log_level": 0,
            **({} if on_commit is None else {"on_commit": on_commit}),
            **{key.replace("_", "."): value for key, value in config.items()},
        }
    )
    made.subscribe(list(topics) or ["t"])
    try:
        yield made
    finally:
        made.close()


def test_members_share_commit_and_take_over(broker):
    fill(broker, 40)
    with consumer(broker) as first:
        received = until(lambda got: len(got) == 40, first)
        first.commit(asynchronous=False)
        with consumer(broker) as second:
            until(lambda _: len(assigned(first)) == len(assigned(second)) == 2, first, second)
            assert not assigned(first) & assigned(second)
            fill(broker, 40, start=40)
            received += until(lambda got: len(got) == 40, first, second)
            first.commit(asynchronous=False)
            second.commit(asynchronous=False)
        until(lambda _: len(assigned(first)) == 4, first)
        fill(broker, 4, start=80)
        received += until(lambda got: len(got) == 4, first)
    assert sorted(int(m.value()) for m in received) == list(range(84)), "everything once, nothing twice"
    assert not any(seen.api_key == JOIN_GROUP for seen in broker.requests)


def test_a_static_member_restarts_without_moving_partitions(broker):
    with consumer(broker, group_instance_id="a") as first:
        until(lambda _: len(assigned(first)) == 4, first)
        with consumer(broker, group_instance_id="b") as second:
            until(lambda _: len(assigned(first)) == len(assigned(second)) == 2, first, second)
            held = assigned(second)
        with consumer(broker, group_instance_id="b") as again:
            until(lambda _: assigned(again) == held, first, again)
            assert len(assigned(first)) == 2


def test_a_silent_member_loses_its_partitions(impatient):
    broker = impatient
    with consumer(broker) as first, consumer(broker, client_id="silent") as second:
        until(lambda _: len(assigned(first)) == len(assigned(second)) == 2, first, second)
        broker.control(None, lambda seen: IGNORE if seen.client_id == "silent" else None, times=None)
        until(lambda _: len(assigned(first)) == 4, first)
        broker.clear_controls()
        broker.kill_connections("silent")


def test_the_range_assignor_and_several_topics(broker):
    with consumer(broker, "t", "u", group_remote_assignor="range") as first:
        until(lambda _: len(assigned(first)) == 6, first)
        with consumer(broker, "t", "u", group_remote_assignor="range") as second:
            until(lambda _: len(assigned(first)) == len(assigned(second)) == 3, first, second)
            for each in (first, second):
                shares = sorted(assigned(each))
                assert shares in (
                    [("t", 0), ("t", 1), ("u", 0)],
                    [("t", 2), ("t", 3), ("u", 1)],
                )


def test_new_partitions_are_found(broker):
    from confluent_kafka.admin import NewPartitions

    with consumer(broker) as first:
        until(lambda _: len(assigned(first)) == 4, first)
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        admin.create_partitions([NewPartitions("t", 6)])["t"].result(60)
        until(lambda _: len(assigned(first)) == 6, first)


def test_a_regular_expression(broker):
    with consumer(broker, "^[tx]$") as first:
        until(lambda _: len(assigned(first)) == 4, first)


def test_a_stale_epoch_may_not_commit(broker):
    with consumer(broker) as first:
        until(lambda _: len(assigned(first)) == 4, first)
        outsider = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "g", "log_level": 0})
        with pytest.raises(KafkaException, match="UNKNOWN_MEMBER_ID"):
            outsider.commit(offsets=[TopicPartition("t", 0, 1)], asynchronous=False)
        outsider.close()


def test_a_group_changes_its_protocol_when_it_is_empty(broker):
    fill(broker, 8)
    with consumer(broker) as modern:
        until(lambda got: len(got) == 8, modern)
        modern.commit(asynchronous=False)
    fill(broker, 4, start=8)
    with consumer(broker, protocol="classic") as classic:
        got = until(lambda got: len(got) == 4, classic)
        assert sorted(int(m.value()) for m in got) == [8, 9, 10, 11]
        classic.commit(asynchronous=False)
    fill(broker, 4, start=12)
    with consumer(broker) as modern:
        got = until(lambda got: len(got) == 4, modern)
        assert sorted(int(m.value()) for m in got) == [12, 13, 14, 15]


def test_members_move_to_the_other_protocol_and_back_one_by_one(broker):
    old = {"protocol": "classic", "partition_assignment_strategy": "cooperative-sticky", "heartbeat_interval_ms": 100}
    roll(broker, lambda told: consumer(broker, on_commit=told, **old), lambda told: consumer(broker, on_commit=told))


def test_administration(broker):
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    with consumer(broker) as first:
        until(lambda _: len(assigned(first)) == 4, first)
        (listed,) = admin.list_consumer_groups().result(60).valid
        assert (listed.group_id, listed.state.name, listed.type.name) == ("g", "STABLE", "CONSUMER")
        (described,) = [future.result(60) for future in admin.describe_consumer_groups(["g"]).values()]
        assert described.type.name == "CONSUMER"
        assert described.partition_assignor == "uniform"
        (member,) = described.members
        assert len(member.assignment.topic_partitions) == 4
        with pytest.raises(KafkaException, match="NON_EMPTY_GROUP"):
            admin.delete_consumer_groups(["g"])["g"].result(60)
    admin.delete_consumer_groups(["g"])["g"].result(60)
    assert admin.list_consumer_groups().result(60).valid == []


def test_a_transaction_commits_offsets_of_a_kip848_group(broker):
    fill(broker, 8)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "x"})
    producer.init_transactions(60)
    with consumer(broker) as first:
        until(lambda got: len(got) == 8, first)
        producer.begin_transaction()
        producer.produce("u", b"out")
        producer.send_offsets_to_transaction(first.position(first.assignment()), first.consumer_group_metadata(), 60)
        producer.commit_transaction(60)
        assert {p.offset for p in first.committed(first.assignment(), 60)} == {2}
