"""`__share_group_state`: snapshots, updates, and what is deleted."""

from uuid import UUID

import pytest

from kclient_quota.broker.cluster_state import BrokerInfo, ClusterState
from kclient_quota.broker.internal_topics import SHARE_GROUP_STATE
from kclient_quota.broker.log.partition_log import PartitionLog
from kclient_quota.broker.log.segments import SegmentPool
from kclient_quota.broker.shares.share_state_topic import ShareStateTopic, Written
from kclient_quota.wire.codec import decode
from kclient_quota.wire.messages.coordinator_records import ShareSnapshotValue
from kclient_quota.wire.records import iterate_records
from tests.unit.broker.enforced_cluster import ManualScheduler as TurnByTurn
from tests.unit.broker.handler_node import ManualScheduler

TOPIC = UUID(int=7)


def made(scheduler=None):
    pool = SegmentPool(1 << 16)
    cluster = ClusterState(
        cluster_id="c",
        brokers=[BrokerInfo(1, "127.0.0.1", {"PLAINTEXT": 9001})],
        new_topic_id=lambda: UUID(int=1),
        new_log=lambda config: PartitionLog(pool, config),
    )
    topic = ShareStateTopic(cluster, scheduler or ManualScheduler())
    topic.records.is_told = True
    return cluster, topic


def records(cluster):
    logs = [partition.log for partition in cluster.topics[SHARE_GROUP_STATE].partitions]
    found = [(log.start_offset, record) for log in logs for batch in log.batches() for record in iterate_records(batch)]
    return [record for start, record in found if record.offset >= start]


def test_after_five_hundred_updates_comes_a_snapshot_and_what_is_older_goes():
    scheduler = ManualScheduler()
    cluster, topic = made(scheduler)
    topic.initialize("g", (TOPIC, 0), 3)
    for offset in range(500):
        topic.write("g", (TOPIC, 0), Written(offset, 0, 0, [[offset, offset, 2, 1]]), list)
    assert {record.key[:2] for record in records(cluster)} == {b"\x00\x00", b"\x00\x01"}
    now = Written(500, 1, 0, [[500, 500, 2, 1], [501, 501, 0, 1]])
    topic.write("g", (TOPIC, 0), Written(500, 1, 0, [[500, 500, 2, 1]]), lambda: now)
    (last,) = records(cluster)
    value = decode(ShareSnapshotValue, 0, last.value, 2)
    assert (value.snapshot_epoch, value.state_epoch, value.start_offset) == (1, 3, 500)
    assert [(run.first_offset, run.delivery_state) for run in value.state_batches] == [(500, 2), (501, 0)]
    topic.forget("g", (TOPIC, 0))
    topic.forget("g", (TOPIC, 0))
    scheduler.pass_ms(0)
    assert [record.value for record in records(cluster)][1:] == [None], "once"


def test_very_many_that_are_gone_are_told_of_in_turns_and_one_that_is_back_is_not():
    scheduler = TurnByTurn()
    cluster, topic = made(scheduler)
    for index in range(1_000):
        topic.initialize("g", (TOPIC, index), 3)
    for index in range(1_000):
        topic.forget("g", (TOPIC, index))
    topic.initialize("g", (TOPIC, 7), 4)
    assert list(topic.parts("g")) == [(TOPIC, 7)]
    turns = []
    for _ in range(20):
        before = len(records(cluster))
        scheduler.pass_ms(0)
        turns.append(len(records(cluster)) - before)
    assert max(turns) <= 100
    assert sum(turns) == 999
    values = {record.key: record.value for record in records(cluster)}
    assert [key[-4:] for key, value in values.items() if value is not None] == [(7).to_bytes(4, "big")]


def test_what_a_neighbour_needs_stays():
    """Nothing is deleted that is newer than the last snapshot of any partition in the same share of the topic."""
    cluster, topic = made()
    for index in range(200):
        topic.initialize("g", (TOPIC, index), 1)
    topic.initialize("g", (TOPIC, 0), 1)
    told = {decode_part(record) for record in records(cluster)}
    assert told == set(range(200))


def decode_part(record):
    return int.from_bytes(record.key[-4:], "big")


@pytest.mark.parametrize("is_undone", [True, False], ids=["told-and-undone", "not-told"])
def test_after_what_was_told_wrongly_or_not_at_all_comes_a_snapshot(is_undone, monkeypatch):
    cluster, topic = made()
    topic.initialize("g", (TOPIC, 0), 3)

    def refuse(*_):
        raise OSError("No space left on device")

    with monkeypatch.context() as patched:
        if not is_undone:
            patched.setattr(topic.records, "append_all", refuse)
        topic.write("g", (TOPIC, 0), Written(0, 1, 0, [[3, 3, 2, 1]]), list)
    if is_undone:
        topic.mistold("g", (TOPIC, 0))
    now = Written(0, 0 if is_undone else 1, 0, [[3, 3, 0 if is_undone else 2, 1], [4, 4, 0, 1]])
    topic.write("g", (TOPIC, 0), Written(0, 0, 0, [[4, 4, 0, 1]]), lambda: now)
    (last,) = records(cluster)
    value = decode(ShareSnapshotValue, 0, last.value, 2)
    runs = [(run.first_offset, run.last_offset, run.delivery_state, run.delivery_count) for run in value.state_batches]
    assert runs == [tuple(run) for run in now.changed]
