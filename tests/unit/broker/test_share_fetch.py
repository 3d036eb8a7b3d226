"""What a share fetch costs, and what happens to one that waits."""

import pytest

from kclient_quota.broker.cluster_state import GROUP
from kclient_quota.broker.groups.coordinator_record import key_of
from kclient_quota.broker.internal_topics import CONSUMER_OFFSETS
from kclient_quota.broker.manners import RELEASED
from kclient_quota.broker.request.promise import Promise
from kclient_quota.broker.shares import share_partition
from kclient_quota.broker.shares.share_group import ShareGroup
from kclient_quota.broker.shares.share_partition import ACCEPT, RELEASE
from kclient_quota.broker.shares.share_service import ShareService
from kclient_quota.wire.batches import TRANSACTIONAL
from kclient_quota.wire.codec import decode
from kclient_quota.wire.error_codes import ErrorCode
from kclient_quota.wire.messages import DeleteGroupsRequest, ShareAcknowledgeRequest, ShareFetchRequest
from kclient_quota.wire.messages.coordinator_records import (
    ShareGroupMetadataValue,
    ShareGroupStatePartitionMetadataValue,
)
from kclient_quota.wire.records import ABORT, Record, build_batch, control_batch, iterate_records
from tests.unit.broker.enforced_cluster import Cluster

FETCH = ShareFetchRequest
HELD = FETCH.AcknowledgementBatch


class Shared:
    """A broker whose topic `t` the share group `g` reads from its beginning; what it writes to disk is counted."""

    def __init__(self, **config):
        self.cluster = Cluster()
        self.state = self.cluster.state
        self.topic = self.state.topics["t"]
        self.log = self.topic.partitions[0].log
        for key, value in {"share.auto.offset.reset": "earliest", **config}.items():
            self.state.set_config(GROUP, "g", key, value)
        self.state.changes.clear()
        self.place = "g", self.topic.topic_id, 0
        self.service = self.cluster.nodes[0].services.get(ShareService)
        self.is_full = False
        self.state.on_save = self._save

    def _save(self, cluster, changes):
        if self.is_full and changes:
            raise OSError("No space left on device")

    def write(self, count=1, **known):
        for _ in range(count):
            self.log.append(build_batch([Record(b"v", timestamp_ms=0)], **known), leader_epoch=0, now_ms=0)

    def fetch(self, epoch=0, *, member="m", max_wait_ms=0, records=500, said=()):
        said = [HELD(first_offset=first, last_offset=last, acknowledge_types=[kind]) for first, last, kind in said]
        part = FETCH.FetchPartition(partition_index=0, acknowledgement_batches=said)
        request = FETCH(
            group_id="g",
            member_id=member,
            share_session_epoch=epoch,
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            max_bytes=1 << 20,
            max_records=records,
            batch_size=records,
            topics=[FETCH.FetchTopic(topic_id=self.topic.topic_id, partitions=[part])],
        )
        return self.cluster.send(request, 2)

    def acknowledge(self, epoch, *said, member="m"):
        batches = [
            ShareAcknowledgeRequest.AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=[kind])
            for first, last, kind in said
        ]
        part = ShareAcknowledgeRequest.AcknowledgePartition(partition_index=0, acknowledgement_batches=batches)
        topic = ShareAcknowledgeRequest.AcknowledgeTopic(topic_id=self.topic.topic_id, partitions=[part])
        return self.cluster.send(
            ShareAcknowledgeRequest(group_id="g", member_id=member, share_session_epoch=epoch, topics=[topic]), 2
        )

    def waited(self, ms=0):
        """What the fetch that waits is answered, or None, once so much time has passed."""
        self.cluster.scheduler.pass_ms(ms)
        return self.cluster._response(78, 2)


def rows(answer):
    return [
        (row.error_code, [(one.first_offset, one.last_offset) for one in row.acquired_records])
        for topic in answer.responses
        for row in topic.partitions
    ]


def test_what_aborted_batches_cost_grows_with_them_alone(monkeypatch):
    shared, known, looks = Shared(**{"share.isolation.level": "read_committed"}), {"producer_epoch": 0}, [0]
    transactional = {**known, "producer_id": 7, "attributes": TRANSACTIONAL}
    for number in range(600):
        shared.write(**transactional, base_sequence=number)
        if number % 100 == 0:
            shared.write()
    marker = control_batch(ABORT, timestamp_ms=0, producer_id=7, **known)
    shared.log.append_marker(marker, leader_epoch=0, now_ms=0)
    plain = share_partition.bisect_right

    def looked_up(*args, **kwargs):
        looks[0] += 1
        return plain(*args, **kwargs)

    monkeypatch.setattr(share_partition, "bisect_right", looked_up)
    ((error, acquired),) = rows(shared.fetch(records=300))
    assert (error, acquired) == (ErrorCode.NONE, [(1, 1), (102, 102), (203, 203)])
    assert looks[0] < 20 * 300


@pytest.mark.parametrize("seed", range(3))
def test_what_was_not_aborted_is_left_wherever_it_stands(seed):
    shared = Shared(**{"share.isolation.level": "read_committed"})
    wanted, sequence = [], 0
    for number in range(60):
        if (number * 7919 + seed) % (2 + seed) == 0:
            wanted.append(shared.log.end_offset)
            shared.write()
        else:
            shared.write(producer_id=7, producer_epoch=0, attributes=TRANSACTIONAL, base_sequence=sequence)
            sequence += 1
    marker = control_batch(ABORT, timestamp_ms=0, producer_id=7, producer_epoch=0)
    shared.log.append_marker(marker, leader_epoch=0, now_ms=0)
    ((error, acquired),) = rows(shared.fetch())
    assert error == ErrorCode.NONE
    offsets = [offset for first, last in acquired for offset in range(first, last + 1)]
    assert [offset for offset in offsets if offset < 60] == wanted


def test_nothing_is_kept_of_a_topic_that_is_deleted_while_a_fetch_waits():
    shared = Shared()
    assert shared.fetch(max_wait_ms=1_000) is None
    shared.state.delete_topic("t")
    assert rows(shared.waited(1_000)) == [(ErrorCode.UNKNOWN_TOPIC_ID, [])]
    assert not shared.service.partitions


def test_a_fetch_whose_session_has_ended_acquires_nothing():
    shared = Shared()
    assert shared.fetch(max_wait_ms=1_000) is None
    shared.service.sessions.close(1, "g", "m")
    shared.write()
    assert rows(shared.waited(1_000)) == []
    assert shared.service.partitions[shared.place].next_new == 0


def test_a_group_that_is_deleted_has_no_sessions():
    shared = Shared()
    shared.write()
    shared.fetch()
    shared.service.coordinator.groups["g"] = ShareGroup("g")
    answer = shared.cluster.send(DeleteGroupsRequest(groups_names=["g"]), 2)
    assert answer.results[0].error_code == ErrorCode.NONE
    assert shared.fetch(1).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
    assert not shared.service.partitions


def test_what_a_fetch_acknowledges_is_kept_before_it_waits():
    shared = Shared()
    shared.write()
    assert rows(shared.fetch()) == [(ErrorCode.NONE, [(0, 0)])]
    shared.is_full = True
    answer = shared.fetch(1, max_wait_ms=1_000, said=[(0, 0, ACCEPT)])
    assert answer is not None, "it does not wait for what others keep"
    assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR


def test_who_gives_back_what_another_waits_for_hears_that_it_could_not_be_kept():
    shared = Shared()
    shared.write()
    assert rows(shared.fetch()) == [(ErrorCode.NONE, [(0, 0)])]
    assert shared.fetch(member="other", max_wait_ms=1_000) is None
    done, outcomes = shared.cluster._done, []
    shared.cluster._done = lambda outcome: (outcomes.append(outcome), done(outcome))
    shared.is_full = True
    # the other's answer would come first, and this one's would be the second
    assert shared.acknowledge(1, (0, 0, RELEASE)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert len(outcomes) == 1


def test_an_answer_that_is_emptied_late_takes_nothing_from_who_has_it_by_then():
    shared = Shared()
    shared.state.manner = RELEASED
    shared.write()
    shared.cluster.quota({"client-id": "c"}, consumer_byte_rate=1)
    disk = Promise()

    async def on_disk():
        await disk

    shared.state.on_disk = on_disk
    assert shared.fetch() is None, "it waits for the disk"
    shared.service.sessions.close(1, "g", "m")
    shared.state.on_disk = None
    shared.cluster.quota({"client-id": "c"}, consumer_byte_rate=None)
    assert rows(shared.fetch(member="other")) == [(ErrorCode.NONE, [(0, 0)])]
    assert shared.acknowledge(1, (0, 0, ACCEPT), member="other").error_code == ErrorCode.NONE
    shared.cluster.quota({"client-id": "c"}, consumer_byte_rate=1)
    shared.cluster.outcome = None
    disk.resolve(None)
    assert shared.waited().responses == []


@pytest.mark.parametrize("count", [3, 1_500])
@pytest.mark.parametrize("epoch", [1, -1], ids=["goes-on", "ends"])
def test_what_was_said_is_in_an_emptied_answer_however_much_it_is(epoch, count):
    shared = Shared()
    shared.fetch()
    said = [HELD(first_offset=0, last_offset=0, acknowledge_types=[ACCEPT])]
    parts = [FETCH.FetchPartition(partition_index=index, acknowledgement_batches=said) for index in range(count)]
    topics = [FETCH.FetchTopic(topic_id=shared.topic.topic_id, partitions=parts)]
    request = FETCH(group_id="g", member_id="m", share_session_epoch=epoch, max_records=1, topics=topics)
    shared.cluster.quota({"client-id": "c"}, consumer_byte_rate=1)
    answer = shared.cluster.send(request, 2)
    while answer is None:
        answer = shared.waited()
    assert answer.throttle_time_ms > 0
    assert [row.partition_index for topic in answer.responses for row in topic.partitions] == [*range(count)]


def test_what_a_group_has_begun_to_read_is_told_of_and_that_it_is_gone():
    shared = Shared()
    telling, states = shared.service.telling, shared.service.state_topic
    telling.offsets_topic.is_told = states.records.is_told = True
    shared.service.coordinator.groups["g"] = ShareGroup("g", epoch=1)
    shared.service.coordinator.touch("g")
    shared.service.after_call()
    shared.write()
    shared.fetch()
    assert shared.acknowledge(1, (0, 0, ACCEPT)).error_code == ErrorCode.NONE
    (initialized,) = of_kind(shared, ShareGroupStatePartitionMetadataValue)
    value = decode(ShareGroupStatePartitionMetadataValue, 0, initialized, 2)
    assert [(topic.topic_name, topic.partitions) for topic in value.initialized_topics] == [("t", [0])]
    shared.service.forget(shared.place)
    shared.service.after_call()
    assert shared.cluster.send(DeleteGroupsRequest(groups_names=["g"]), 2).results[0].error_code == ErrorCode.NONE
    assert not of_kind(shared, ShareGroupStatePartitionMetadataValue)
    assert not of_kind(shared, ShareGroupMetadataValue)


def of_kind(shared, kind):
    """What is told of one kind."""
    logs = [partition.log for partition in shared.state.topics[CONSUMER_OFFSETS].partitions]
    records = [record for log in logs for batch in log.batches() for record in iterate_records(batch)]
    values = {record.key: record.value for record in records if record.key.startswith(key_of(kind))}
    return [value for value in values.values() if value is not None]


def test_a_long_connection_holds_no_session_that_has_ended():
    shared = Shared()
    ends = shared.cluster.connection.on_close
    shared.fetch(member="other")
    for _ in range(3):
        shared.fetch()
        shared.fetch()
        shared.fetch(-1)
    (held,) = shared.service.sessions._connections.values()
    assert (list(held), len(ends)) == ([(1, "g", "other")], 1)
    shared.write()
    shared.fetch(1, member="other")
    while ends:
        ends.pop()()
    assert rows(shared.fetch(member="another")) == [(ErrorCode.NONE, [(0, 0)])]
