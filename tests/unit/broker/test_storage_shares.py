"""Share groups after a restart."""

import pytest

from kclient_quota.broker.cluster_state import GROUP
from kclient_quota.broker.groups.in_steps import at_once
from kclient_quota.broker.internal_topics import SHARE_GROUP_STATE, wire_string
from kclient_quota.broker.shares.share_group import ShareGroup
from kclient_quota.broker.shares.share_partition import ACCEPT, RELEASE, Acknowledgement, ShareRules, Wanted
from kclient_quota.wire.codec import decode
from kclient_quota.wire.error_codes import ErrorCode
from kclient_quota.wire.messages.coordinator_records import ShareSnapshotValue
from kclient_quota.wire.records import iterate_records
from tests.unit.broker.storage_life import Halting, Life


def acquired(life, *, epoch=0):
    """A member of the share group `s` acquires all of `t`."""
    topic = life.cluster.topics["t"]
    kept = life.shares.partition("s", topic, topic.partitions[0], 5)
    end = life.log().end_offset
    found = kept.acquire("m", [(offset, offset) for offset in range(end)], Wanted(100, 100), ShareRules(), 5)
    return kept, [(one.first, one.last, one.delivery) for one in found]


def acknowledged(folder, *said):
    """A life of nine records that the share group `s` has acquired and has said this of; where that is kept."""
    life = Life(folder)
    life.create()
    life.cluster.set_config(GROUP, "s", "share.auto.offset.reset", "earliest")
    for _ in range(9):
        life.append(b"v")
    kept, _ = acquired(life)
    assert kept.acknowledge("m", list(said), ShareRules(), 5)[0] == ErrorCode.NONE
    life.shares.changed(place := ("s", life.cluster.topics["t"].topic_id, 0))
    life.cluster.save()
    life.storage.close()
    return place


def test_what_a_share_group_has_settled_and_given_back_is_known_after_a_restart(tmp_path):
    place = acknowledged(
        tmp_path, Acknowledgement(0, 1, [ACCEPT]), Acknowledgement(3, 3, [ACCEPT]), Acknowledgement(5, 6, [RELEASE])
    )

    again = Life(tmp_path)
    assert again.shares.coordinator.groups["s"].state == "Empty"
    kept = again.shares.partitions[place]
    assert (kept.start_offset, kept.next_new, kept.written) == (2, 9, (0, 3))
    assert acquired(again)[1] == [(2, 2, 1), (4, 4, 1), (5, 6, 2), (7, 8, 1)]
    again.cluster.delete_topic("t")
    assert not again.shares.partitions
    again.cluster.save()
    assert not list(again.storage._journal.items("share"))
    again.storage.close()


def test_what_was_settled_before_a_restart_is_told_anew_after_it(tmp_path):
    acknowledged(
        tmp_path, Acknowledgement(0, 1, [ACCEPT]), Acknowledgement(5, 6, [RELEASE]), Acknowledgement(8, 8, [ACCEPT])
    )
    again = Life(tmp_path)
    again.shares.telling.offsets_topic.is_told = again.shares.state_topic.records.is_told = True
    again.shares.tell_all()
    logs = [partition.log for partition in again.cluster.topics[SHARE_GROUP_STATE].partitions]
    (told,) = [record for log in logs for batch in log.batches() for record in iterate_records(batch)]
    value = decode(ShareSnapshotValue, 0, told.value, 2)
    assert (value.start_offset, value.delivery_complete_count) == (2, 1)
    runs = [(run.first_offset, run.last_offset, run.delivery_state, run.delivery_count) for run in value.state_batches]
    assert runs == [(2, 4, 0, 0), (5, 6, 0, 1), (7, 7, 0, 0), (8, 8, 2, 1)]
    again.storage.close()


def test_a_share_group_begins_where_it_began_before_a_restart(tmp_path):
    life = Life(tmp_path)
    life.create()
    life.append(b"before")
    assert acquired(life)[0].start_offset == 1, "the latest"
    life.cluster.save()
    life.append(b"a")
    life.storage.close()
    again = Life(tmp_path)
    assert acquired(again)[1] == [(1, 1, 1)]
    again.storage.close()


def test_a_share_group_that_is_ahead_of_its_log_passes_over_nothing(tmp_path, caplog):
    place = acknowledged(tmp_path, Acknowledgement(0, 3, [ACCEPT]), Acknowledgement(7, 8, [ACCEPT]))
    # a power cut: the end of the log never reached the disk
    (file,) = (tmp_path / "logs").rglob("*.log")
    with file.open("r+b") as log:
        log.truncate(file.stat().st_size * 6 // 9)

    again = Life(tmp_path)
    end = again.log().end_offset
    assert 4 < end < 7
    assert f"share group s was at offset 9 of t-0, whose log ends at {end}" in caplog.text
    again.storage.close()
    last = Life(tmp_path)
    kept = last.shares.partitions[place]
    assert (kept.start_offset, kept.next_new) == (4, end)
    for _ in range(5):
        last.append(b"new")
    assert acquired(last)[1] == [(4, end - 1, 1), (end, end + 4, 1)]
    last.storage.close()


def test_what_a_share_group_was_told_and_cannot_be_kept_is_undone(tmp_path):
    life = Life(tmp_path, disk=(disk := Halting(1 << 30)))
    life.create()
    life.cluster.set_config(GROUP, "s", "share.auto.offset.reset", "earliest")
    life.append(b"a")
    kept, _ = acquired(life)
    life.cluster.save()
    disk.room = 0
    assert kept.acknowledge("m", [Acknowledgement(0, 0, [ACCEPT])], ShareRules(), 5)[0] == ErrorCode.NONE
    life.shares.changed(("s", life.cluster.topics["t"].topic_id, 0))
    with pytest.raises(OSError, match="No space"):
        life.cluster.save()
    disk.room = 1 << 30
    assert acquired(life)[1] == [(0, 0, 1)]
    life.storage.close()


def test_what_was_told_of_a_share_group_and_is_undone_is_told_otherwise_with_the_next_change(tmp_path):
    life = told(Life(tmp_path))
    life.create()
    life.cluster.set_config(GROUP, "s", "share.auto.offset.reset", "earliest")
    life.append(b"a", b"b")
    place = "s", life.cluster.topics["t"].topic_id, 0
    for offset, is_full in ((0, False), (1, True), (1, False)):
        kept, _ = acquired(life)
        kind = [ACCEPT if is_full else RELEASE]
        assert kept.acknowledge("m", [Acknowledgement(offset, offset, kind)], ShareRules(), 5)[0] == ErrorCode.NONE
        life.shares.changed(place)
        if is_full:
            life.shares.restore(place, life.storage._journal.get("share", place[0], place[1].hex, place[2]))
        life.cluster.save()
    (last,) = [record for log in logs(life) for record in after_start(log)]
    value = decode(ShareSnapshotValue, 0, last.value, 2)
    assert {run.delivery_state for run in value.state_batches} == {0}
    life.storage.close()


@pytest.mark.parametrize("is_alone", [True, False])
def test_what_a_broker_that_ends_had_no_time_to_tell_is_gone_after_a_restart_is_not_told_as_if_it_were(
    tmp_path, is_alone
):
    life = told(Life(tmp_path))
    life.create()
    life.cluster.set_config(GROUP, "s", "share.auto.offset.reset", "earliest")
    life.append(b"v")
    for group in ("s",) if is_alone else ("s", "other"):
        life.shares.coordinator.groups[group] = ShareGroup(group)
        life.shares.begin_at((group, life.cluster.topics["t"].topic_id, 0), 0, 0)
    assert at_once(life.shares.delete_group("s")) == ErrorCode.NONE
    life.cluster.save()
    life.storage.close()

    again = told(Life(tmp_path))
    again.shares.tell_all()
    keys = {record.key for log in logs(again) for record in after_start(log)}
    assert not any(wire_string("s") in key for key in keys)
    assert len(keys) == (not is_alone)
    again.storage.close()


def told(life):
    life.shares.telling.offsets_topic.is_told = life.shares.state_topic.records.is_told = True
    life.shares.state_topic.records.prepare()
    life.cluster.save()
    return life


def logs(life):
    return [partition.log for partition in life.cluster.topics[SHARE_GROUP_STATE].partitions]


def after_start(log):
    records = [record for batch in log.batches() for record in iterate_records(batch)]
    return [record for record in records if record.offset >= log.start_offset]
