"""Very many names in what is told of a group are encoded in turns, and are what they would be at once."""

from copy import deepcopy
from dataclasses import replace
from uuid import UUID

import pytest

from kclient_quota.broker.groups.consumer.group import ConsumerGroup, ConsumerMember
from kclient_quota.broker.groups.consumer.group_records import ToldConsumerGroup
from kclient_quota.broker.groups.consumer.group_records import changes as consumer_changes
from kclient_quota.broker.groups.consumer.group_records import farewell as consumer_farewell
from kclient_quota.broker.groups.coordinator_record import key_of, names_of
from kclient_quota.broker.groups.in_steps import AT_ONCE, at_once
from kclient_quota.broker.shares.share_group import ShareGroup, ShareMember
from kclient_quota.broker.shares.share_group_records import ToldShareGroup
from kclient_quota.broker.shares.share_group_records import changes as share_changes
from kclient_quota.broker.shares.share_group_records import farewell as share_farewell
from kclient_quota.wire.codec import decode
from kclient_quota.wire.messages.coordinator_records import (
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupRegularExpressionValue,
    ShareGroupMemberMetadataValue,
)

COUNT = 12 * AT_ONCE
NAMES = [f"topic-{number:06}" for number in range(COUNT)]
METADATA = {name: (UUID(int=number + 1), 1) for number, name in enumerate(NAMES)}


def consumer_group(**member):
    group = ConsumerGroup("g", epoch=1, metadata=METADATA)
    group.put(ConsumerMember("m", client_id="c", member_epoch=1, **member))
    return group


def share_group():
    member = ShareMember("m", frozenset(NAMES), client_id="c")
    return ShareGroup("g", epoch=1, members={"m": member}, metadata=METADATA)


CASES = {
    "list": (
        lambda: consumer_group(topics=frozenset(NAMES)),
        lambda group: consumer_changes(ToldConsumerGroup(), group, 0),
        ConsumerGroupMemberMetadataValue,
        lambda value: value.subscribed_topic_names,
        "m",
    ),
    "expression": (
        lambda: consumer_group(regex="topic-.*"),
        lambda group: consumer_changes(ToldConsumerGroup(), group, 0),
        ConsumerGroupRegularExpressionValue,
        lambda value: value.topics,
        "topic-.*",
    ),
    "share": (
        share_group,
        lambda group: share_changes(ToldShareGroup(), group, None, 0),
        ShareGroupMemberMetadataValue,
        lambda value: value.subscribed_topic_names,
        "m",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_list_of_names_is_made_in_turns(case):
    group_of, said_of, kind, names_of, about = CASES[case]
    turns, found = 0, []
    for one in said_of(group_of()):
        if one is None:
            turns += not found
        elif one[0] == key_of(kind, "g", about):
            found.append(decode(kind, 0, one[1][2:]))
    (value,) = found
    assert names_of(value) == NAMES
    assert turns >= COUNT // AT_ONCE + 3, "to look through them, and to write them"


def test_no_turn_encodes_more_than_some_thousands():
    assert len(list(names_of(ConsumerGroupMemberMetadataValue, NAMES))) == COUNT // (4 * AT_ONCE)
    longest = max(map(len, at_once(names_of(ConsumerGroupMemberMetadataValue, NAMES))))
    assert longest <= 4 * AT_ONCE * len(b"\x0d" + NAMES[0].encode())


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("gone_after", range(0, 30, 3))
def test_who_leaves_meanwhile_is_not_told_of(case, gone_after):
    group_of, said_of, kind, _, about = CASES[case]
    group, turns, is_gone = group_of(), 0, False
    for one in said_of(group):
        if one is not None and one[0] == key_of(kind, "g", about):
            assert not is_gone
            return
        turns += one is None
        if turns == gone_after:
            is_gone = True
            group.members.pop("m", None)
            group.metadata = {}
    assert is_gone


def changed_consumer(group):
    group.put(replace(group.members["m"], client_id="another"))


def changed_share(group):
    group.members["m"].client_id = "another"


@pytest.mark.parametrize("is_over", [True, False], ids=["group", "member"])
@pytest.mark.parametrize(
    ("group", "told", "said", "changed", "farewell"),
    [
        (
            consumer_group(topics=frozenset(NAMES)),
            ToldConsumerGroup(),
            lambda told, group: consumer_changes(told, group, 0),
            changed_consumer,
            consumer_farewell,
        ),
        (
            share_group(),
            ToldShareGroup(),
            lambda told, group: share_changes(told, group, None, 0),
            changed_share,
            share_farewell,
        ),
    ],
    ids=["consumer", "share"],
)
def test_who_leaves_before_all_of_it_is_told_leaves_nothing(group, told, said, changed, farewell, is_over):
    group, told = deepcopy(group), deepcopy(told)
    values = {}
    steps = said(told, group)
    assert next(steps) is None
    changed(group)  # while its names are being told
    values.update(filter(None, steps))
    assert any(key.endswith(b"m") for key, value in values.items() if value is not None)
    del group.members["m"]
    values.update(filter(None, farewell(told, "g") if is_over else said(told, group)))
    assert not [key for key, value in values.items() if value is not None and (is_over or key.endswith(b"m"))]
