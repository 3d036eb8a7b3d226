"""Groups of KIP-848 and KIP-932 after a restart: their members learn that they are to join anew."""

import pytest

from kclient_quota.broker.groups.committed_offsets import CommittedOffset
from kclient_quota.broker.groups.consumer.requests import Beat
from kclient_quota.broker.groups.in_steps import at_once
from kclient_quota.broker.shares.share_group import ShareBeat
from kclient_quota.wire.error_codes import ErrorCode
from tests.unit.broker.storage_life import Halting, Life


def consumer_beat(life, epoch, **said):
    beat = Beat("g", "m", epoch, rebalance_timeout_ms=1_000, owned=frozenset(), **said)
    if not epoch:
        beat = Beat("g", "m", 0, rebalance_timeout_ms=1_000, topics=frozenset({"t"}), owned=frozenset(), **said)
    answer = at_once(life.groups.consumer_groups.heartbeat(beat, "", life.cluster.directory, 5))
    life.groups.after_call()
    return answer


def share_beat(life, epoch):
    beat = ShareBeat("g", "m", epoch, topics=None if epoch else frozenset({"t"}))
    answer = at_once(life.shares.coordinator.heartbeat(beat, life.cluster.directory, 5))
    life.shares.after_call()
    return answer


@pytest.mark.parametrize("beat", [consumer_beat, share_beat])
def test_a_member_from_before_a_restart_joins_anew(tmp_path, beat):
    life = Life(tmp_path)
    life.create()
    assert (joined := beat(life, 0)).error is ErrorCode.NONE
    life.storage.close()

    again = Life(tmp_path)
    assert beat(again, joined.member_epoch).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert beat(again, 0).error is ErrorCode.NONE
    again.storage.close()


def test_what_a_consumer_group_committed_is_its_own_after_a_restart(tmp_path):
    life = Life(tmp_path)
    life.create()
    epoch = consumer_beat(life, 0).member_epoch
    life.groups.commit("g", "t", 0, CommittedOffset(7))
    life.groups.commit_pending(3, "g", "t", 0, CommittedOffset(8))
    life.storage.close()

    again = Life(tmp_path)
    assert again.groups.committed("g", "t", 0) == CommittedOffset(7)
    # no classic group of the same name beside it
    assert "g" not in again.groups.coordinator.groups
    assert again.groups.consumer_group("g").state == "Empty"
    assert again.groups.validate_offset_commit("g", "m", None, epoch, 5) is ErrorCode.UNKNOWN_MEMBER_ID
    again.storage.close()


def test_a_static_member_from_before_a_restart_joins_anew(tmp_path):
    life = Life(tmp_path)
    life.create()
    epoch = consumer_beat(life, 0, instance_id="i").member_epoch
    life.storage.close()

    again = Life(tmp_path)
    assert consumer_beat(again, epoch, instance_id="i").error is ErrorCode.UNKNOWN_MEMBER_ID
    assert consumer_beat(again, 0, instance_id="i").error is ErrorCode.NONE
    again.storage.close()


def test_a_group_that_was_deleted_is_not_there_after_a_restart(tmp_path):
    life = Life(tmp_path)
    life.create()
    consumer_beat(life, 0)
    consumer_beat(life, -1)
    assert life.groups.delete_group("g") is ErrorCode.NONE
    share_beat(life, 0)
    share_beat(life, -1)
    assert at_once(life.shares.delete_group("g")) is ErrorCode.NONE
    life.storage.close()

    again = Life(tmp_path)
    assert consumer_beat(again, 3).error is ErrorCode.GROUP_ID_NOT_FOUND
    assert share_beat(again, 3).error is ErrorCode.GROUP_ID_NOT_FOUND
    again.storage.close()


def test_the_name_of_a_group_that_another_protocol_took_over_is_that_one_s(tmp_path):
    life = Life(tmp_path)
    life.create()
    consumer_beat(life, 0)
    consumer_beat(life, -1)
    assert life.groups.make_room_for_classic_group("g")
    life.groups.after_call()
    share_beat(life, 0)
    life.storage.close()

    again = Life(tmp_path)
    assert again.groups.consumer_group("g") is None
    assert "g" in again.shares.coordinator.groups
    again.storage.close()


def test_a_group_that_a_full_disk_does_not_keep_goes_on_and_is_kept_when_there_is_room(tmp_path, caplog):
    disk = Halting(1 << 20)
    life = Life(tmp_path, disk=disk)
    life.create()
    disk.room = 0
    assert consumer_beat(life, 0).error is ErrorCode.NONE
    assert "that there is a group g" in caplog.text
    disk.room = 1 << 20
    consumer_beat(life, -1)
    life.storage.close()

    again = Life(tmp_path)
    assert again.groups.consumer_group("g") is not None
    again.storage.close()
