"""Groups and topics that go with very many positions: gone at once, told of by and by."""

from types import SimpleNamespace

import pytest

from kclient_quota.broker.groups import offsets_topic
from kclient_quota.broker.groups.committed_offsets import CommittedOffset
from kclient_quota.broker.groups.group_service import GroupService
from kclient_quota.broker.internal_topics import CONSUMER_OFFSETS, internal_topic, wire_string
from kclient_quota.broker.server import EmbeddedBroker
from kclient_quota.wire.error_codes import ErrorCode
from kclient_quota.wire.records import iterate_records
from tests.unit.broker.handler_node import Node
from tests.unit.broker.storage_life import Life

MANY = 5_500


@pytest.fixture
def node(monkeypatch):
    node = Node()
    node.told = {}

    def tell(about, records):
        node.told |= {key: value is not None for key, value in records if key.startswith(b"\0\1")}

    monkeypatch.setattr(node.service.topic.records, "append_all", tell)
    node.service.topic.records.is_told = True
    node.cluster.create_topic("big", MANY)
    for group in ("g", "h"):
        node.service.coordinator.get_or_create(group)
        for partition in range(MANY):
            node.service.commit(group, "big", partition, CommittedOffset(7))
    return node


def told_of(node, *groups):
    """How many positions of these groups are there, as the last that `__consumer_offsets` says of each."""
    begins = tuple(b"\0\1" + wire_string(group) for group in groups)
    return sum(is_there for key, is_there in node.told.items() if key.startswith(begins))


def turns_until_told(node):
    """In how many turns of the loop the rest was told of, no more than so many in each."""
    sizes, plain = [], node.scheduler.call_at

    def turn(call):
        before = told_of(node, "g", "h")
        call()
        sizes.append(before - told_of(node, "g", "h"))

    node.scheduler.call_at = lambda at_ms, call: plain(at_ms, lambda: turn(call))
    while node.service.topic._leaving:
        node.scheduler.pass_ms(0)
    assert max(sizes) <= offsets_topic._AT_ONCE
    return 1 + len(sizes)  # the first was set before


def test_a_group_of_very_many_positions_is_gone_at_once_and_told_of_in_turns(node):
    assert told_of(node, "g") == MANY
    assert node.service.delete_group("g") is ErrorCode.NONE
    assert not list(node.service.offsets.fetch_all("g"))
    assert told_of(node, "g") == MANY, "to find them was enough for one turn"
    assert turns_until_told(node) == 23
    assert told_of(node, "g") == 0
    assert told_of(node, "h") == MANY


def test_a_topic_that_went_takes_positions_along_which_are_told_of_in_turns(node):
    node.cluster.delete_topic("big")
    assert node.service.committed("h", "big", 3) is None
    assert not list(node.service.offsets.fetch_all("g"))
    assert turns_until_told(node) == 45
    assert told_of(node, "g", "h") == 0


def test_a_position_that_is_back_before_its_end_is_told_stays(node):
    assert node.service.delete_group("g") is ErrorCode.NONE
    node.service.coordinator.get_or_create("g")
    node.service.commit("g", "big", 0, CommittedOffset(8))
    node.service.commit("g", "big", MANY - 1, CommittedOffset(9))
    turns_until_told(node)
    assert told_of(node, "g") == 2


def test_a_group_of_few_positions_waits_for_none_of_many(node):
    node.service.coordinator.get_or_create("small")
    node.service.commit("small", "t", 0, CommittedOffset(7))
    assert node.service.delete_group("g") is ErrorCode.NONE
    assert node.service.delete_group("small") is ErrorCode.NONE
    assert told_of(node, "small") == 0
    turns_until_told(node)


def test_a_disk_that_refuses_leaves_positions_of_a_topic_that_went_where_they_are(node):
    def refuse(*_):
        raise OSError("No space left on device")

    node.service.offsets.leave_observers.append(refuse)
    node.cluster.delete_topic("big")
    for _ in range(2):
        with pytest.raises(OSError, match="No space"):
            node.service.committed("h", "big", 3)
    node.service.offsets.leave_observers.clear()
    assert node.service.committed("h", "big", 3) is None
    assert not list(node.service.offsets.fetch_all("g"))


def test_records_that_are_refused_hold_up_nobody(node, caplog, monkeypatch):
    def refuse(*_):
        raise OSError("No space left on device")

    assert node.service.delete_group("g") is ErrorCode.NONE
    monkeypatch.setattr(node.service.topic.records, "append_all", refuse)
    while node.service.topic._leaving:
        node.scheduler.pass_ms(0)
    assert "is not told" in caplog.text


def test_a_transaction_s_position_is_none_in_a_topic_that_was_made_anew_meanwhile(tmp_path):
    life = Life(tmp_path)
    life.create("t")
    life.groups.coordinator.get_or_create("g")
    life.groups.commit_pending(7, "g", "t", 0, CommittedOffset(1_000))
    life.groups.commit_pending(7, "g", "other", 0, CommittedOffset(3))
    life.cluster.delete_topic("t")
    life.create("t")
    assert life.groups.offsets.complete(7, commit=True)
    # nobody asks for it, and so looks at its topic, before the restart
    life.storage.close()
    again = Life(tmp_path)
    assert again.groups.committed("g", "t", 0) is None
    again.storage.close()


def test_what_is_left_to_tell_is_told_when_a_broker_stops(node):
    assert node.service.delete_group("g") is ErrorCode.NONE
    node.service.topic.tell_rest()
    assert told_of(node, "g") == 0
    node.scheduler.pass_ms(0)


def test_a_broker_that_is_closed_at_once_has_told_of_all_positions_that_went(tmp_path, monkeypatch):
    monkeypatch.setattr(offsets_topic, "_AT_ONCE", 1)
    many = 500  # of which a broker that is closed at once would have told of one

    def alive(broker):
        last = {}
        for partition in internal_topic(broker.cluster, CONSUMER_OFFSETS).partitions:
            for batch in partition.log.batches():
                last |= {bytes(record.key): record.value for record in iterate_records(bytes(batch))}
        return sum(key.startswith(b"\0\1") and value is not None for key, value in last.items())

    def fill(running):
        service = running.services.get(GroupService)
        service.coordinator.get_or_create("g")
        internal_topic(running.cluster, CONSUMER_OFFSETS)
        running.cluster.save()  # as a request that creates topics does
        for partition in range(many):
            service.commit("g", "t", partition, CommittedOffset(5))
        # it is closed before its loop has another turn for these
        monkeypatch.setattr(service.topic, "_alarm", SimpleNamespace(set=lambda _: None))
        return alive(running)

    with EmbeddedBroker(topics={"t": many}, data_dir=tmp_path) as broker:
        assert broker._call(lambda: fill(broker._running())) == many
        assert broker._call(lambda: broker._running().services.get(GroupService).delete_group("g")) is ErrorCode.NONE
    with EmbeddedBroker(data_dir=tmp_path) as broker:
        assert broker._call(lambda: alive(broker._running())) == 0
