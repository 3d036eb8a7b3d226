"""Consumer groups of confluent-kafka on the embedded broker: rebalances, static members, expiry, administration."""

import time
from contextlib import ExitStack, contextmanager

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from kclient_quota.broker import EmbeddedBroker
from kclient_quota.broker.request.controls import IGNORE
from tests.integration.group_members import DEADLINE_S, assigned, fill, until

JOIN_GROUP, HEARTBEAT, SYNC_GROUP = 11, 12, 14


@pytest.fixture
def broker():
    properties = {"group.min.session.timeout.ms": "100"}
    with EmbeddedBroker(topics={"t": 4}, properties=properties) as running:
        yield running


@contextmanager
def consumer(broker, **config):
    made = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "g",
            "auto.offset.reset": "earliest",
            "session.timeout.ms": 45_000,
            "heartbeat.interval.ms": 100,
            "enable.auto.commit": False,
            **{key.replace("_", "."): value for key, value in config.items()},
        }
    )
    made.subscribe(["t"])
    try:
        yield made
    finally:
        made.close()


def count_requests(broker, api_key):
    return sum(1 for seen in broker.requests if seen.api_key == api_key)


def test_members_share_and_take_over(broker):
    everything = {("t", index) for index in range(4)}
    with consumer(broker) as first:
        until(lambda _: assigned(first) == everything, first)
        with consumer(broker) as second:
            until(lambda _: len(assigned(first)) == len(assigned(second)) == 2, first, second)
            assert assigned(first) | assigned(second) == everything
            fill(broker, 40)
            received = until(lambda got: len(got) == 40, first, second)
            assert sorted(int(m.value()) for m in received) == list(range(40))
        until(lambda _: assigned(first) == everything, first)


def test_a_group_resumes_where_it_committed(broker):
    fill(broker, 40)
    with consumer(broker) as first:
        received = until(lambda got: len(got) == 40, first)
        positions = first.commit(asynchronous=False)
        assert {(p.partition, p.offset) for p in positions} == {(index, 10) for index in range(4)}
    fill(broker, 8, start=40)
    with consumer(broker) as second:
        resumed = until(lambda got: len(got) == 8, second)
    assert [len(received), sorted(int(m.value()) for m in resumed)] == [40, list(range(40, 48))]


def test_cooperative_members_move_partitions_one_step_at_a_time(broker):
    strategy = {"partition_assignment_strategy": "cooperative-sticky"}
    with consumer(broker, **strategy) as first:
        until(lambda _: len(assigned(first)) == 4, first)
        before = assigned(first)
        with consumer(broker, **strategy) as second:
            until(lambda _: len(assigned(second)) == 2 and len(assigned(first)) == 2, first, second)
            assert assigned(first) < before
            assert assigned(first) | assigned(second) == before


def test_a_static_member_restarts_without_a_rebalance(broker):
    with consumer(broker, group_instance_id="a") as first:
        until(lambda _: len(assigned(first)) == 4, first)
        with consumer(broker, group_instance_id="b") as second:
            until(lambda _: len(assigned(first)) == len(assigned(second)) == 2, first, second)
            held = assigned(second)
        joins = count_requests(broker, JOIN_GROUP)
        with consumer(broker, group_instance_id="b") as again:
            until(lambda _: assigned(again) == held, first, again)
            assert len(assigned(first)) == 2
            assert count_requests(broker, JOIN_GROUP) == joins + 1, "only the restarted member joined"


def test_the_older_of_two_members_with_one_instance_id_is_fenced(broker):
    with ExitStack() as stack:
        first = stack.enter_context(consumer(broker, group_instance_id="a"))
        until(lambda _: len(assigned(first)) == 4, first)
        second = stack.enter_context(consumer(broker, group_instance_id="a"))
        until(lambda _: len(assigned(second)) == 4, second)
        deadline, names = time.monotonic() + DEADLINE_S, set()
        while "_FATAL" not in names:
            assert time.monotonic() < deadline, names
            try:
                message = first.poll(0.05)
            except KafkaException as error:
                names.add(error.args[0].name())
            else:
                names |= {message.error().name()} if message is not None and message.error() else set()


def test_a_member_that_falls_silent_loses_its_partitions(broker):
    with consumer(broker, session_timeout_ms=1000) as first, consumer(broker, client_id="silent") as second:
        until(lambda _: len(assigned(first)) == len(assigned(second)) == 2, first, second)
    with (
        consumer(broker, session_timeout_ms=1000) as first,
        consumer(broker, session_timeout_ms=1000, client_id="silent") as second,
    ):
        until(lambda _: len(assigned(first)) == len(assigned(second)) == 2, first, second)
        started = time.monotonic()
        broker.control(None, lambda seen: IGNORE if seen.client_id == "silent" else None, times=None)
        until(lambda _: len(assigned(first)) == 4, first)
        assert time.monotonic() - started > 0.5
        broker.clear_controls()
        broker.kill_connections("silent")


def serve(condition, *consumers):
    """As `until`, but whoever is told that it has not polled in time may be told so."""
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline
        for each in consumers:
            each.poll(0.02)


def test_a_member_that_does_not_poll_leaves_and_may_come_back(broker):
    limits = {"max_poll_interval_ms": 1000, "session_timeout_ms": 1000}
    with consumer(broker) as first, consumer(broker, **limits) as second:
        serve(lambda: len(assigned(first)) == len(assigned(second)) == 2, first, second)
        serve(lambda: len(assigned(first)) == 4, first)
        serve(lambda: len(assigned(second)) == 2, first, second)


def test_committing_as_somebody_who_is_no_member_is_refused(broker):
    fill(broker, 4)
    with consumer(broker) as member:
        until(lambda _: len(assigned(member)) == 4, member)
        outsider = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "g"})
        with pytest.raises(KafkaException, match="UNKNOWN_MEMBER_ID"):
            outsider.commit(offsets=[TopicPartition("t", 0, 1)], asynchronous=False)
        outsider.close()
    alone = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "alone"})
    alone.commit(offsets=[TopicPartition("t", 0, 3)], asynchronous=False)
    assert [p.offset for p in alone.committed([TopicPartition("t", 0), TopicPartition("t", 1)], 60)] == [3, -1001]
    alone.close()


def test_groups_on_three_brokers():
    with EmbeddedBroker(brokers=3, topics={"t": 3}) as broker, ExitStack() as stack:
        members = [stack.enter_context(consumer(broker, group_id=f"g{number}")) for number in range(6)]
        until(lambda _: all(len(assigned(each)) == 3 for each in members), *members)
        joined = {seen.broker_id for seen in broker.requests if seen.api_key == SYNC_GROUP}
        assert len(joined) > 1, "groups are spread over the brokers"
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        listed = admin.list_consumer_groups().result(60)
        assert {group.group_id for group in listed.valid} == {f"g{number}" for number in range(6)}


def test_the_coordinator_may_go_away_and_come_back(broker):
    with consumer(broker) as member:
        until(lambda _: len(assigned(member)) == 4, member)
        broker.restart(1)
        fill(broker, 8)
        deadline, values = time.monotonic() + DEADLINE_S, set()
        while len(values) < 8:
            assert time.monotonic() < deadline
            message = member.poll(0.05)
            if message is not None and message.error() is None:
                values.add(int(message.value()))


def test_administration_of_groups(broker):
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    fill(broker, 8)
    with consumer(broker, client_id="c1") as member:
        until(lambda got: len(got) == 8, member)
        member.commit(asynchronous=False)
        (described,) = [future.result(60) for future in admin.describe_consumer_groups(["g"]).values()]
        assert (described.state.name, described.coordinator.id, described.partition_assignor) == ("STABLE", 1, "range")
        (shown,) = described.members
        assert (shown.client_id, len(shown.assignment.topic_partitions)) == ("c1", 4)
        with pytest.raises(KafkaException, match="NON_EMPTY_GROUP"):
            admin.delete_consumer_groups(["g"])["g"].result(60)
    (listed,) = admin.list_consumer_groups().result(60).valid
    assert (listed.group_id, listed.state.name, listed.is_simple_consumer_group) == ("g", "EMPTY", False)
    change = ConsumerGroupTopicPartitions("g", [TopicPartition("t", 0, 1)])
    (altered,) = [future.result(60) for future in admin.alter_consumer_group_offsets([change]).values()]
    assert altered.topic_partitions[0].error is None
    ask = ConsumerGroupTopicPartitions("g")
    (offsets,) = [future.result(60) for future in admin.list_consumer_group_offsets([ask]).values()]
    assert {(p.partition, p.offset) for p in offsets.topic_partitions} == {(0, 1), (1, 2), (2, 2), (3, 2)}
    admin.delete_consumer_groups(["g"])["g"].result(60)
    assert admin.list_consumer_groups().result(60).valid == []


def test_the_initial_delay_is_kafkas_when_asked_for():
    properties = {"group.initial.rebalance.delay.ms": "4000"}
    with EmbeddedBroker(topics={"t": 4}, properties=properties) as broker, consumer(broker) as first:
        started = time.monotonic()
        with consumer(broker) as second:
            until(lambda _: len(assigned(first)) == len(assigned(second)) == 2, first, second)
        assert time.monotonic() - started > 3.9
        assert count_requests(broker, JOIN_GROUP) == 4, "both were in the first generation"
