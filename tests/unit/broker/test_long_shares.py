"""Share groups of very many partitions: others have their turn, and what comes meanwhile is seen."""

import struct
from itertools import pairwise
from random import Random
from uuid import UUID, uuid4

import pytest

from kclient_quota.broker.cluster_state import GROUP
from kclient_quota.broker.groups import assignors, in_steps
from kclient_quota.broker.groups.consumer import subscriptions
from kclient_quota.broker.groups.coordinator_record import key_of
from kclient_quota.broker.groups.in_steps import at_once
from kclient_quota.broker.internal_topics import CONSUMER_OFFSETS, SHARE_GROUP_STATE
from kclient_quota.broker.manners import RELEASED
from kclient_quota.broker.request.context import AT_ONCE, ConnectionState, Services
from kclient_quota.broker.shares import share_group, share_service
from kclient_quota.broker.shares.share_group import ShareGroup, ShareMember, assigned
from kclient_quota.broker.shares.share_partition import RENEW
from kclient_quota.broker.shares.share_records import RecordState
from kclient_quota.broker.shares.share_service import ShareService
from kclient_quota.broker.shares.share_sessions import RELEASED_AT_ONCE
from kclient_quota.wire.codec import decode
from kclient_quota.wire.error_codes import ErrorCode
from kclient_quota.wire.messages import (
    AlterShareGroupOffsetsRequest,
    DeleteGroupsRequest,
    DeleteShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequest,
    ShareAcknowledgeRequest,
    ShareFetchRequest,
    ShareGroupDescribeRequest,
    ShareGroupHeartbeatRequest,
)
from kclient_quota.wire.messages.coordinator_records import (
    ShareGroupMetadataValue,
    ShareGroupTargetAssignmentMemberValue,
)
from kclient_quota.wire.records import Record, build_batch, iterate_records
from tests.unit.broker.enforced_cluster import ManualScheduler
from tests.unit.broker.handler_node import Node

TOPICS, MANY = 6, 200
TOTAL = TOPICS * MANY
NAMES = [f"t{number}" for number in range(TOPICS)]
INDEXES = range(MANY)
MEMBER, OTHER = str(UUID(int=1)), str(UUID(int=2))


class Shared(Node):
    """A broker with some topics of very many partitions; `turn` is one turn of its loop."""

    def __init__(self):
        super().__init__()
        self.scheduler = ManualScheduler()
        self.services = Services(self.cluster, self.scheduler)
        self.cluster.new_topic_id = uuid4
        self.topics = [self.cluster.create_topic(name, MANY) for name in NAMES]
        self.cluster.set_config(GROUP, "g", "share.auto.offset.reset", "earliest")
        self.turns = 0

    @property
    def shares(self):
        return self.services.get(ShareService)

    def turn(self):
        self.scheduler.pass_ms(0)
        self.turns += 1

    def ended(self, answers):
        self.turns = 0
        while not answers:
            self.turn()
            assert self.turns < 10_000
        if isinstance(answers[0], Exception):
            raise answers[0]
        return answers[0]

    def beat(self, member=MEMBER, epoch=0, names=NAMES):
        request = ShareGroupHeartbeatRequest(
            group_id="g", member_id=member, member_epoch=epoch, subscribed_topic_names=names if epoch == 0 else None
        )
        return self.start(request, 1)

    def fetch(self, epoch=0, member=MEMBER, max_wait_ms=0, max_records=10 * TOTAL):
        part = ShareFetchRequest.FetchPartition
        topic = ShareFetchRequest.FetchTopic
        request = ShareFetchRequest(
            group_id="g",
            member_id=member,
            share_session_epoch=epoch,
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            max_bytes=1 << 24,
            max_records=max_records,
            batch_size=500,
            topics=[
                topic(topic_id=each.topic_id, partitions=[part(partition_index=index) for index in INDEXES])
                for each in (self.topics if epoch == 0 else [])
            ],
        )
        return self.start(request, 1)

    def acknowledge(self, epoch, kind=1, said=None, indexes=INDEXES, topics=TOPICS):
        part, topic = ShareAcknowledgeRequest.AcknowledgePartition, ShareAcknowledgeRequest.AcknowledgeTopic
        batch = ShareAcknowledgeRequest.AcknowledgementBatch
        said = said or [(0, 0, kind)]
        batches = [batch(first_offset=first, last_offset=last, acknowledge_types=types) for first, last, *types in said]
        rows = [part(partition_index=index, acknowledgement_batches=batches) for index in indexes]
        topics = [topic(topic_id=each.topic_id, partitions=rows) for each in self.topics[:topics]]
        request = ShareAcknowledgeRequest(
            group_id="g", member_id=MEMBER, share_session_epoch=epoch, topics=topics, is_renew_ack=kind == RENEW
        )
        return self.start(request, 2)

    def write(self, records=1):
        batch = build_batch([Record(b"v", timestamp_ms=0)] * records)
        for topic in self.topics:
            for partition in topic.partitions:
                partition.log.append(batch, leader_epoch=0, now_ms=0)

    def disconnect(self):
        """The connection ends, and the next request comes by another."""
        gone, self.connection = self.connection, ConnectionState("PLAINTEXT", "127.0.0.1")
        for callback in gone.on_close:
            callback()

    @property
    def held(self):
        """Of how many partitions somebody holds something."""
        return sum(kept.next_deadline_ms() is not None for kept in self.shares.partitions.values())

    def alter(self):
        row = AlterShareGroupOffsetsRequest.AlterShareGroupOffsetsRequestPartition
        topic = AlterShareGroupOffsetsRequest.AlterShareGroupOffsetsRequestTopic
        rows = [row(partition_index=index, start_offset=7) for index in INDEXES]
        topics = [topic(topic_name=name, partitions=rows) for name in NAMES]
        return self.start(AlterShareGroupOffsetsRequest(group_id="g", topics=topics), 0)

    def describe(self):
        group = DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestGroup(group_id="g", topics=None)
        return self.start(DescribeShareGroupOffsetsRequest(groups=[group]), 0)


@pytest.fixture
def shared():
    return Shared()


def rows_of(fetched):
    return [row for topic in fetched.responses for row in topic.partitions]


def acquired_of(fetched):
    return sum(bool(row.acquired_records) for row in rows_of(fetched))


def count_of(topics):
    return sum(len(topic.partitions) for topic in topics)


def test_members_join_and_are_described_in_turns(shared, monkeypatch):
    for module in (assignors, in_steps, share_group, subscriptions):
        monkeypatch.setattr(module, "AT_ONCE", 100)
    joined = shared.ended(shared.beat())
    assert count_of(joined.assignment.topic_partitions) == TOTAL
    assert shared.turns >= 2 * TOTAL // 100, "to assign them, and to answer"
    other = shared.ended(shared.beat(OTHER))
    assert count_of(other.assignment.topic_partitions) == TOTAL // 2
    described = shared.ended(shared.start(ShareGroupDescribeRequest(group_ids=["g"]), 1)).groups[0]
    assert shared.turns >= TOTAL // 100
    assert (described.group_epoch, described.assignment_epoch) == (2, 2)
    assert [count_of(member.assignment.topic_partitions) for member in described.members] == [TOTAL // 2] * 2
    told = shared.ended(shared.beat(MEMBER, joined.member_epoch))
    assert count_of(told.assignment.topic_partitions) == TOTAL // 2


def test_very_much_is_read_and_acknowledged_in_turns(shared):
    shared.write()
    fetched = shared.ended(shared.fetch())
    assert shared.turns >= 3 * TOTAL // AT_ONCE
    assert count_of(fetched.responses) == TOTAL
    assert all(row.acquired_records for topic in fetched.responses for row in topic.partitions)
    said = shared.ended(shared.acknowledge(1))
    assert shared.turns >= 4 * TOTAL // AT_ONCE
    assert {row.error_code for topic in said.responses for row in topic.partitions} == {ErrorCode.NONE}
    assert count_of(said.responses) == TOTAL


@pytest.mark.parametrize("turns", [10, 14, 20, 26])
def test_nothing_is_acquired_for_a_session_that_has_ended_meanwhile(shared, turns):
    shared.write()
    answers = shared.fetch()
    for _ in range(turns):
        shared.turn()
    shared.disconnect()
    shared.ended(answers)
    for _ in range(100):
        shared.turn()
    fetched = shared.ended(shared.fetch(member=OTHER))
    assert all(row.acquired_records for topic in fetched.responses for row in topic.partitions)


def test_what_many_sessions_of_one_connection_held_is_given_back_in_turns(shared):
    shared.write()
    for number in range(20):
        shared.ended(shared.fetch(member=f"m{number}", max_records=40))
    held = [shared.held]
    assert held == [800]
    shared.disconnect()
    while held[-1]:
        held.append(shared.held)
        shared.turn()
    assert max(before - after for before, after in pairwise(held)) <= RELEASED_AT_ONCE


@pytest.mark.parametrize("turns", [0, 1, 7])
def test_a_member_that_comes_back_meanwhile_has_all_of_it_and_loses_nothing(shared, turns):
    shared.write()
    shared.ended(shared.fetch())
    shared.disconnect()
    for _ in range(turns):
        shared.turn()
    assert acquired_of(shared.ended(shared.fetch())) == TOTAL
    for _ in range(100):
        shared.turn()
    assert shared.held == TOTAL


def test_a_session_that_is_opened_again_and_again_leaves_nothing_with_its_connection(shared):
    for _ in range(3):
        shared.ended(shared.fetch())
    shared.ended(shared.fetch(-1))
    shared.ended(shared.fetch())
    assert len(shared.connection.on_close) == 1
    shared.disconnect()
    assert not shared.shares.sessions._connections


def test_partitions_with_many_records_under_way_are_worth_more_turns(shared):
    shared.write(records=400)
    shared.ended(shared.fetch(max_records=400 * TOTAL))
    few = shared.turns
    shared.ended(shared.acknowledge(1))
    assert shared.turns >= TOTAL * (4 + 399 // 100) // AT_ONCE
    shared.ended(shared.fetch(2))
    assert shared.turns >= TOTAL * (1 + 399 // 100) // AT_ONCE
    assert few >= TOTAL // AT_ONCE


@pytest.mark.parametrize("said", [[(at, at, 1) for at in range(3_000)], [(0, 11_999, *[1] * 12_000)]])
def test_very_much_that_is_said_of_one_partition_is_read_in_turns(shared, said):
    shared.write()
    shared.ended(shared.fetch())
    answer = shared.ended(shared.acknowledge(1, said=said, indexes=[0], topics=1))
    assert shared.turns >= 1
    assert answer.responses[0].partitions[0].error_code == ErrorCode.INVALID_REQUEST
    wrong = shared.ended(shared.acknowledge(2, said=[*said[:-1], (*said[-1][:-1], 9)], indexes=[0], topics=1))
    assert wrong.responses[0].partitions[0].error_code == ErrorCode.INVALID_REQUEST
    assert shared.held == TOTAL


@pytest.mark.parametrize("turns", [0, 4, 10, 17, 23])
def test_nothing_is_acquired_where_a_group_begins_anew_meanwhile(shared, turns):
    shared.ended(shared.alter())
    shared.write(records=9)
    answers = shared.fetch()
    for _ in range(turns):
        shared.turn()
    for place in list(shared.shares.partitions):
        shared.shares.begin_at(place, 0, 0)
    fetched = shared.ended(answers)
    assert {(one.first_offset, one.last_offset) for row in rows_of(fetched) for one in row.acquired_records} <= {(0, 8)}
    assert shared.held == acquired_of(fetched)


def test_what_was_acquired_for_an_answer_that_is_sent_empty_is_given_back_in_turns(shared):
    shared.cluster.manner = RELEASED
    shared.write()
    shared.ended(shared.fetch())
    emptied = shared.context.emptied()
    assert acquired_of(emptied) == 0
    assert 0 < shared.held < TOTAL
    for _ in range(TOTAL // RELEASED_AT_ONCE):
        shared.turn()
    assert {count for kept in shared.shares.partitions.values() for _, count in kept.deliveries().values()} == {0}


@pytest.mark.parametrize("turns", [0, 2, 6, 10])
def test_a_fetch_that_waits_hears_of_what_has_come_while_it_began_to(shared, turns):
    answers = shared.fetch(max_wait_ms=60_000)
    for _ in range(turns):
        shared.turn()
    shared.write()
    for _ in range(40):
        shared.turn()
    shared.scheduler.pass_ms(100)
    fetched = shared.ended(answers)
    assert any(row.acquired_records for topic in fetched.responses for row in topic.partitions)


def test_offsets_are_altered_described_and_deleted_in_turns(shared):
    assert shared.ended(shared.alter()).error_code == ErrorCode.NONE
    assert shared.turns >= 4 * TOTAL // AT_ONCE
    (group,) = shared.ended(shared.describe()).groups
    assert {row.start_offset for topic in group.topics for row in topic.partitions} == {7}
    assert [(topic.topic_name, len(topic.partitions)) for topic in group.topics] == [(name, MANY) for name in NAMES]
    topic = DeleteShareGroupOffsetsRequest.DeleteShareGroupOffsetsRequestTopic
    request = DeleteShareGroupOffsetsRequest(group_id="g", topics=[topic(topic_name=name) for name in NAMES])
    deleted = shared.ended(shared.start(request, 0))
    assert shared.turns >= TOTAL // AT_ONCE
    assert {row.error_code for row in deleted.responses} == {ErrorCode.NONE}
    assert not shared.shares.partitions


def test_a_group_is_deleted_in_turns_and_nobody_joins_it_meanwhile(shared):
    shared.ended(shared.alter())
    answers = shared.start(DeleteGroupsRequest(groups_names=["g"]), 2)
    assert not answers
    assert shared.ended(shared.beat()).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert shared.ended(shared.alter()).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert [row.error_code for row in shared.ended(answers).results] == [ErrorCode.NONE]
    assert not shared.shares.partitions
    assert "g" not in shared.shares.coordinator.groups
    assert shared.ended(shared.beat()).error_code == ErrorCode.NONE


def test_offsets_of_a_group_that_is_deleted_meanwhile_are_not_kept(shared):
    answers = shared.alter()
    shared.turn()
    shared.ended(shared.start(DeleteGroupsRequest(groups_names=["g"]), 2))
    rows = [row for topic in shared.ended(answers).responses for row in topic.partitions]
    assert rows[-1].error_code == ErrorCode.GROUP_ID_NOT_FOUND
    kept = sum(row.error_code == ErrorCode.NONE for row in rows)
    assert kept < TOTAL
    assert len(shared.shares.partitions) <= kept


def test_offsets_of_a_group_that_somebody_joins_meanwhile_are_not_altered_any_more(shared):
    answers = shared.alter()
    shared.turn()
    assert shared.ended(shared.beat()).error_code == ErrorCode.NONE
    rows = [row.error_code for topic in shared.ended(answers).responses for row in topic.partitions]
    altered = rows.count(ErrorCode.NONE)
    assert 0 < altered < TOTAL
    assert rows == [ErrorCode.NONE] * altered + [ErrorCode.NON_EMPTY_GROUP] * (TOTAL - altered)
    assert len(shared.shares.partitions) == altered


@pytest.mark.parametrize("turns", [6, 10, 20, 100])
def test_who_is_lost_meanwhile_is_told_so(shared, monkeypatch, turns):
    for module in (in_steps, share_group, subscriptions):
        monkeypatch.setattr(module, "AT_ONCE", 4)
    joined = shared.ended(shared.beat())
    answers = shared.beat(OTHER)
    for _ in range(turns):
        shared.turn()
    group = shared.shares.coordinator.groups["g"]
    assert list(group.members) == [MEMBER, OTHER]
    shared.shares.coordinator._remove(group, OTHER)
    assert shared.ended(answers).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert list(group.members) == [MEMBER]
    told = shared.ended(shared.beat(MEMBER, joined.member_epoch))
    assert (told.error_code, told.member_epoch) == (ErrorCode.NONE, group.epoch)
    assert len(group.target[MEMBER]) == TOTAL


def test_a_heartbeat_meanwhile_is_answered_after_the_assignment_as_if_it_had_come_then(shared):
    joined = shared.ended(shared.beat())
    answers = shared.beat(OTHER)
    shared.turn()
    meanwhile = shared.beat(MEMBER, joined.member_epoch)
    assert not answers
    assert not meanwhile
    other, told = shared.ended(answers), shared.ended(meanwhile)
    assert other.member_epoch == told.member_epoch
    assert count_of(told.assignment.topic_partitions) == TOTAL // 2


@pytest.mark.parametrize("seed", range(30))
def test_every_partition_has_a_reader_and_readers_have_as_many_as_each_other(seed):
    random = Random(seed)
    metadata = {f"t{number}": (UUID(int=number + 1), random.randint(1, 9)) for number in range(random.randint(1, 6))}
    group = ShareGroup("g", metadata=metadata)
    for number in range(random.randint(1, 5)):
        topics = frozenset(random.sample([*metadata, "gone"], random.randint(1, len(metadata))))
        group.members[f"m{number}"] = ShareMember(f"m{number}", topics)
    found = at_once(assigned(group))
    for name, (topic_id, partitions) in metadata.items():
        readers = sorted(one.member_id for one in group.members.values() if name in one.topics)
        wanted = {reader: set() for reader in readers}
        for turn in range(max(partitions, len(readers)) if readers else 0):
            wanted[readers[turn % len(readers)]].add(turn % partitions)
        has = {reader: {index for of, index in found[reader] if of == topic_id} for reader in readers}
        assert has == wanted
        assert not any(of == topic_id for one in group.members if one not in readers for of, _ in found[one])


@pytest.mark.parametrize("turns", [0, 1])
def test_who_deletes_a_group_that_is_being_deleted_is_to_come_again(shared, turns):
    shared.ended(shared.alter())
    answers = [shared.start(DeleteGroupsRequest(groups_names=["g"]), 2) for _ in range(2)]
    assert shared.ended(answers[1]).results[0].error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert not answers[0]
    assert shared.ended(shared.beat()).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    for _ in range(turns):
        shared.turn()
    assert shared.ended(answers[0]).results[0].error_code == ErrorCode.NONE
    assert shared.ended(shared.start(DeleteGroupsRequest(groups_names=["g"]), 2)).results[0].error_code == (
        ErrorCode.GROUP_ID_NOT_FOUND
    )


def in_hands(shared, answer):
    """Records that an answer hands over, and those of them of which the group knows who has them."""
    given = [
        (topic.topic_id, row.partition_index)
        for topic in answer.responses
        for row in topic.partitions
        if row.acquired_records
    ]
    kept = [shared.shares.partitions.get(("g", *part)) for part in given]
    known = [one for one in kept if one is not None and one.deliveries().get(0) == (RecordState.ACQUIRED, 1)]
    return len(given), len(known)


@pytest.mark.parametrize("turns", range(0, 26, 3))
def test_a_group_that_is_deleted_while_a_member_fetches_does_not_begin_anew_by_that(shared, turns):
    shared.write()
    shared.shares.coordinator.groups["g"] = ShareGroup("g")
    answers = shared.fetch(max_wait_ms=60_000)
    for _ in range(turns):
        shared.turn()
    is_done = bool(answers)
    deleted = shared.ended(shared.start(DeleteGroupsRequest(groups_names=["g"]), 2))
    assert deleted.results[0].error_code == ErrorCode.NONE
    fetched = shared.ended(answers)
    assert not shared.shares.partitions
    assert is_done or in_hands(shared, fetched)[0] < TOTAL


@pytest.mark.parametrize("turns", range(0, 24, 2))
def test_nothing_is_handed_over_of_what_a_group_has_forgotten_while_a_member_fetches(shared, turns):
    shared.write()
    shared.shares.coordinator.groups["g"] = ShareGroup("g")
    answers = shared.fetch()
    for _ in range(turns):
        shared.turn()
    before = sum(one.next_new for one in shared.shares.partitions.values())
    for place in list(shared.shares.partitions):
        shared.shares.forget(place)
    given, known = in_hands(shared, shared.ended(answers))
    assert given - known == before


@pytest.mark.parametrize("turns", [1, 4, 14])
def test_offsets_are_altered_no_more_once_somebody_has_joined(shared, turns):
    shared.write()
    answers = shared.alter()
    for _ in range(turns):
        shared.turn()
    assert shared.ended(shared.beat()).error_code == ErrorCode.NONE
    fetched = shared.ended(shared.fetch())
    rows = [row.error_code for topic in shared.ended(answers).responses for row in topic.partitions]
    assert (len(rows), rows[-1]) == (TOTAL, ErrorCode.NON_EMPTY_GROUP)
    given, known = in_hands(shared, fetched)
    assert 0 < given == known


@pytest.mark.parametrize("turns", [0, 1, 3, 6])
def test_offsets_are_deleted_no_more_once_somebody_has_joined(shared, turns):
    shared.ended(shared.alter())
    topic = DeleteShareGroupOffsetsRequest.DeleteShareGroupOffsetsRequestTopic
    request = DeleteShareGroupOffsetsRequest(group_id="g", topics=[topic(topic_name=name) for name in NAMES])
    answers = shared.start(request, 0)
    for _ in range(turns):
        shared.turn()
    assert shared.ended(shared.beat()).error_code == ErrorCode.NONE
    left = len(shared.shares.partitions)
    rows = shared.ended(answers).responses
    assert (len(rows), rows[-1].error_code) == (TOPICS, ErrorCode.NON_EMPTY_GROUP)
    assert len(shared.shares.partitions) == left > 0


@pytest.mark.parametrize("is_told", [True, False])
@pytest.mark.parametrize("turns", [0, 4, 20])
def test_a_group_begins_nowhere_while_it_is_deleted(shared, turns, is_told):
    shared.shares.state_topic.records.is_told = is_told
    shared.ended(shared.alter())
    answers = shared.alter()
    for _ in range(turns):
        shared.turn()
    deleted = shared.ended(shared.start(DeleteGroupsRequest(groups_names=["g"]), 2))
    assert deleted.results[0].error_code == ErrorCode.NONE
    rows = [row.error_code for topic in shared.ended(answers).responses for row in topic.partitions]
    refusals = {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.GROUP_ID_NOT_FOUND}
    assert (len(rows), rows[-1] in refusals) == (TOTAL, True)
    assert not shared.shares.partitions
    assert not shared.shares.state_topic.parts("g")


def told(shared, name):
    """Records of an internal topic."""
    logs = [partition.log for partition in shared.cluster.topics[name].partitions]
    return [record for log in logs for batch in log.batches() for record in iterate_records(batch)]


def test_a_group_that_comes_back_before_it_was_told_of_is_told_as_another(shared):
    shared.shares.state_topic.records.is_told = shared.shares.telling.offsets_topic.is_told = True
    shared.ended(shared.beat())
    for _ in range(100):
        shared.turn()
    assert shared.ended(shared.beat(epoch=-1)).error_code == ErrorCode.NONE
    shared.ended(shared.start(DeleteGroupsRequest(groups_names=["g"]), 2))
    assert shared.ended(shared.beat(OTHER)).error_code == ErrorCode.NONE
    for _ in range(200):
        shared.turn()
        shared.scheduler.pass_ms(10)
    values = {record.key: record.value for record in told(shared, CONSUMER_OFFSETS)}
    kind = struct.pack(">h", ShareGroupTargetAssignmentMemberValue.__schema__.api_key)
    targets = {key[-len(OTHER) :].decode() for key, value in values.items() if key.startswith(kind) and value}
    assert targets == {OTHER}


@pytest.mark.parametrize("ms", [60, 120, 200])
def test_nothing_is_told_of_what_a_group_is_to_read_once_it_is_deleted(shared, monkeypatch, ms):
    monkeypatch.setattr(share_service, "_FORGOTTEN_AT_ONCE", 100)
    shared.shares.state_topic.records.is_told = shared.shares.telling.offsets_topic.is_told = True
    shared.ended(shared.beat())
    for _ in range(ms // 20):
        shared.scheduler.pass_ms(20)
    assert shared.ended(shared.beat(epoch=-1)).error_code == ErrorCode.NONE
    assert 0 < len(shared.shares.state_topic.parts("g")) < TOTAL, "it is being told"
    answers = shared.start(DeleteGroupsRequest(groups_names=["g"]), 2)
    for _ in range(100):
        shared.scheduler.pass_ms(20)
    assert answers[0].results[0].error_code == ErrorCode.NONE
    assert not shared.shares.state_topic.parts("g")
    values = {record.key: record.value for record in told(shared, SHARE_GROUP_STATE)}
    assert set(values.values()) == {None}


def test_a_lock_lasts_as_long_as_it_is_to_from_when_its_record_was_acquired(shared):
    shared.write()
    for ask in (shared.fetch, lambda: shared.acknowledge(1, RENEW)):
        answers = ask()
        while not answers:
            shared.scheduler.pass_ms(100)
        shared.ended(answers)
        until_ms = {one.next_deadline_ms() for one in shared.shares.partitions.values()}
        assert len(until_ms) >= TOTAL // AT_ONCE, "it took a while"


@pytest.mark.parametrize("ends", ["session", "connection", "locks"])
def test_what_very_many_locks_held_is_given_back_in_turns(shared, ends):
    shared.write()
    shared.ended(shared.fetch())
    if ends == "session":
        shared.shares.sessions.close(1, "g", MEMBER)
    elif ends == "connection":
        shared.disconnect()
    else:
        shared.scheduler.pass_ms(30_000)
    given = [given_back(shared)]
    while given[-1] < TOTAL:
        shared.turn()
        given.append(given_back(shared))
    assert max(after - before for before, after in pairwise([0, *given])) <= RELEASED_AT_ONCE
    fetched = shared.ended(shared.fetch(member=OTHER))
    assert in_hands(shared, fetched)[0] == TOTAL


def given_back(shared):
    return sum(one.deliveries().get(0) == (RecordState.AVAILABLE, 1) for one in shared.shares.partitions.values())


@pytest.mark.parametrize("member", [MEMBER, OTHER])
def test_who_comes_before_all_is_given_back_has_all_of_it(shared, member):
    shared.write()
    shared.ended(shared.fetch())
    shared.shares.sessions.close(1, "g", MEMBER)
    assert given_back(shared) < TOTAL
    answers = shared.fetch(member=member)
    rows = [row for topic in shared.ended(answers).responses for row in topic.partitions]
    for _ in range(20):
        shared.turn()
    assert [one.delivery_count for row in rows for one in row.acquired_records] == [2] * TOTAL
    assert {kept.deliveries()[0] for kept in shared.shares.partitions.values()} == {(RecordState.ACQUIRED, 2)}


@pytest.mark.parametrize("turns", range(0, 24, 2))
def test_nothing_is_handed_over_of_what_another_leads_while_a_member_fetches(shared, turns):
    shared.write()
    answers = shared.fetch()
    for _ in range(turns):
        shared.turn()
    before = sum(one.next_new for one in shared.shares.partitions.values())
    for topic in shared.topics:
        for partition in topic.partitions:
            partition.leader_epoch += 1
    fetched = shared.ended(answers)
    for topic in shared.topics:
        for partition in topic.partitions:
            shared.shares.partition("g", topic, partition, 0)  # as the next leader finds it
    given, known = in_hands(shared, fetched)
    assert given - known == before


@pytest.mark.parametrize("turns", [1, 6, 10, 20, 100])
def test_the_epoch_that_a_group_has_by_one_who_is_lost_meanwhile_is_told(shared, monkeypatch, turns):
    for module in (in_steps, share_group, subscriptions):
        monkeypatch.setattr(module, "AT_ONCE", 4)
    shared.shares.telling.offsets_topic.is_told = True
    answers = shared.beat()
    for _ in range(turns):
        shared.turn()
    group = shared.shares.coordinator.groups["g"]
    shared.shares.coordinator._remove(group, MEMBER)
    shared.shares.after_call()
    assert shared.ended(answers).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    for _ in range(100):
        shared.scheduler.pass_ms(10)
    values = {record.key: record.value for record in told(shared, CONSUMER_OFFSETS)}
    value = decode(ShareGroupMetadataValue, 0, values[key_of(ShareGroupMetadataValue, "g")], 2)
    assert value.epoch == group.epoch
