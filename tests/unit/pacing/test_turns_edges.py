"""Turns to the byte: what is taken together, what is carried along, and what a plain list of messages would say."""

from random import Random

import pytest

from kclient_quota.pacing.sending.turns import ANY_PARTITION, SLACK, Line, Turns, Waiting

T0 = 1_000


def message(payload=0, raw_bytes=10, at_ms=T0, partition=0, topic="t"):
    return Waiting(topic, partition, raw_bytes, at_ms, payload)


def payloads(messages):
    return [each.payload for each in messages]


def filled(line, sizes):
    every = [message(number, size) for number, size in enumerate(sizes)]
    for each in every:
        line.append(each) if isinstance(line, Line) else line.add(each)
    return every


# A message --------------------------------------------------------------------------------------------------------


def test_what_a_message_is_unless_told():
    bare = Waiting("t", 3, 10, T0)
    assert (bare.topic, bare.partition, bare.raw_bytes, bare.queued_at_ms) == ("t", 3, 10, T0)
    assert (bare.payload, bare.expires_at_ms, bare.tenant, bare.key, bare.home, bare.heir) == (None,) * 6
    assert (bare.lane, bare.is_gone) == ("", False)
    assert bare.place == ("t", 3)
    assert ANY_PARTITION == -1


def test_two_messages_of_the_same_content_are_two():
    assert message() != message()
    assert len({message(), message()}) == 2


def test_of_where_a_message_waits_its_text_says_nothing():
    assert repr(Waiting("t", 3, 10, T0)) == (
        "Waiting(topic='t', partition=3, raw_bytes=10, queued_at_ms=1000, payload=None, expires_at_ms=None, "
        "lane='', tenant=None, key=None)"
    )


# A line -------------------------------------------------------------------------------------------------------------


def test_an_empty_line():
    line = Line()
    assert (len(line), line.length, line.raw_bytes, line.turn, list(line), line.first()) == (0, 0, 0, 0, [], None)
    with pytest.raises(IndexError, match="nobody waits"):
        line.pop()


def test_a_line_knows_how_much_waits_in_it():
    line = Line()
    first, second = filled(line, [10, 7])
    assert (len(line), line.raw_bytes, first.home, second.home) == (2, 17, line, line)
    line.appendleft(message("before", 5))
    assert (len(line), line.raw_bytes, payloads(line)) == (3, 22, ["before", 0, 1])
    assert line.pop().payload == "before"
    assert (len(line), line.raw_bytes) == (2, 17)
    line.lose(second)
    assert (len(line), line.raw_bytes, second.is_gone, payloads(line)) == (1, 10, True, [0])
    assert line.pop() is first
    assert (len(line), line.raw_bytes, line.first()) == (0, 0, None)


def test_an_heir_has_the_place_and_the_age_of_the_one_before():
    line = Line()
    old, _ = filled(line, [10, 7])
    new, newest = message("new", 25, T0 + 500), message("newest", 4, T0 + 900)
    line.replace(old, new)
    assert (old.heir, new.home, new.queued_at_ms, line.raw_bytes, len(line)) == (new, line, T0, 32, 2)
    line.replace(new, newest)
    assert (newest.queued_at_ms, line.raw_bytes) == (T0, 11)
    assert payloads(line) == ["newest", 1]
    assert line.first() is newest
    assert line.pop() is newest
    assert payloads(line) == [1]


def test_an_heir_that_has_left_is_passed_over():
    line = Line()
    first, second, third = filled(line, [10, 7, 5])
    heirs = [message("a"), message("b")]
    line.replace(first, heirs[0])
    line.replace(second, heirs[1])
    line.lose(heirs[1])
    assert payloads(line) == ["a", 2]
    line.lose(heirs[0])
    assert payloads(line) == [2]
    assert line.first() is third


def test_who_has_left_is_swept_out_when_there_are_more_than_twice_as_many_and_64():
    line = Line()
    every = filled(line, [1] * 150)
    for each in every[1:108]:
        line.lose(each)
        assert len(line._messages) == 150
    assert line.length == 43
    assert SLACK == 64
    line.lose(every[108])
    assert len(line._messages) == line.length == 42
    assert payloads(line) == [0, *range(109, 150)]


# Turns --------------------------------------------------------------------------------------------------------------


def test_no_turns():
    turns = Turns()
    assert (turns.length, turns.raw_bytes, turns.places, turns.oldest(), list(turns)) == (0, 0, 0, None, [])
    assert (turns.plan(10), turns.take(10)) == (0, [])


@pytest.mark.parametrize(
    ("sizes", "most", "planned", "left"),
    [
        ([10, 20, 30], 60, 60, []),
        ([10, 20, 30], 61, 60, []),
        ([10, 20, 30], 59, 30, [2]),
        ([10, 20, 30], 30, 30, [2]),
        ([10, 20, 30], 29, 10, [1, 2]),
        ([10, 20, 30], 10, 10, [1, 2]),
        ([10, 20, 30], 9, 10, [1, 2]),
        ([10, 20, 30], 0, 10, [1, 2]),
        ([10, 50, 1], 20, 10, [1, 2]),  # what would fit later does not overtake
        ([40], 1, 40, []),
        ([1, 1], 2, 2, []),
        ([1, 2], 2, 1, [1]),
    ],
)
def test_as_much_leaves_together_as_is_allowed_and_one_at_least(sizes, most, planned, left):
    turns = Turns()
    filled(turns, sizes)
    assert turns.plan(most) == planned
    taken = turns.take(most)
    assert payloads(taken) + left == list(range(len(sizes)))
    assert sum(each.raw_bytes for each in taken) == planned
    assert (payloads(turns), turns.length, turns.raw_bytes) == (left, len(left), sum(sizes) - planned)
    assert turns.places == bool(left)


def test_of_those_that_came_at_once_the_first_partition_goes_first():
    turns = Turns()
    for partition in (5, 2, 9, 2, 5):
        turns.add(message(partition, partition=partition))
    assert turns.places == 3
    assert [payloads(turns.take(100)) for _ in range(3)] == [[5, 5], [2, 2], [9]]


def test_a_partition_of_another_topic_is_another():
    turns = Turns()
    for topic in ("t", "u"):
        turns.add(message(topic, topic=topic))
    assert turns.places == 2
    assert payloads(turns.take(100)) == ["t"]


def test_a_partition_whose_oldest_has_left_waits_for_its_next_one_s_turn():
    turns = Turns()
    for payload, partition, at_ms in (("a", 0, 1), ("b", 1, 2), ("c", 0, 3), ("d", 2, 3)):
        turns.add(message(payload, partition=partition, at_ms=at_ms))
    assert payloads(turns.take(10)) == ["a"]
    assert [turns.take(10)[0].payload for _ in range(3)] == ["b", "d", "c"]


def put_back(turns, taken):
    for each in reversed(taken):
        turns.put_back(each)


def test_what_is_put_back_goes_first_in_its_order():
    turns = Turns()
    filled(turns, [10, 20, 30])
    taken = turns.take(30)
    turns.add(message("late", partition=1, at_ms=T0 + 1))
    put_back(turns, taken)
    assert [each.home for each in taken] == [turns, turns]
    assert (turns.length, turns.raw_bytes, turns.places) == (4, 70, 2)
    assert payloads(turns.take(60)) == [0, 1, 2]
    put_back(turns, taken)
    assert payloads(turns) == ["late", 0, 1]
    assert payloads(turns.take(60)) == [0, 1]


def test_who_is_lost_or_replaced_is_counted():
    turns = Turns()
    first, second = filled(turns, [10, 20])
    assert first.home is turns
    new = message("new", 50)
    turns.replace(second, new)
    assert (turns.length, turns.raw_bytes, new.home, payloads(turns)) == (2, 60, turns, [0, "new"])
    turns.lose(first)
    assert (turns.length, turns.raw_bytes, turns.places, payloads(turns)) == (1, 50, 1, ["new"])
    assert turns.plan(50) == 50
    turns.lose(new)
    assert (turns.length, turns.raw_bytes, turns.places, turns.oldest()) == (0, 0, 0, None)


def test_a_partition_that_ran_empty_and_came_again_has_the_turn_of_what_came_then():
    turns = Turns()
    early = message("early", partition=0, at_ms=1)
    turns.add(early)
    turns.add(message("between", partition=1, at_ms=2))
    turns.lose(early)
    turns.add(message("again", partition=0, at_ms=3))
    assert [payloads(turns.take(9)) for _ in range(3)] == [["between"], ["again"], []]


def test_a_message_older_than_the_one_before_it_does_not_bring_its_turn_forward():
    turns = Turns()
    for payload, partition, at_ms in (("a", 0, 1_010), ("older", 0, 1_005)):
        turns.add(message(payload, partition=partition, at_ms=at_ms))
    turns.take(10)
    assert turns.oldest().payload == "older"
    turns.add(message("between", partition=1, at_ms=1_007))
    assert turns.oldest().payload == "between"


def test_turns_of_before_are_swept_out_when_there_are_more_than_twice_as_many_and_64():
    turns = Turns()
    for partition in range(33):
        turns.add(message(partition, partition=partition, at_ms=T0 + partition))
    lengths = []
    for _ in range(98):
        turns.put_back(message("back", partition=7, at_ms=T0 + 7))
        lengths.append(len(turns._ages))
    assert lengths == [*range(34, 131), 33]
    assert [turns.take(10_000)[0].partition for _ in range(33)] == list(range(33))


@pytest.mark.parametrize("seed", range(6))
def test_a_plain_list_of_messages_says_the_same(seed):
    """Whatever comes, leaves, is lost, replaced or put back."""
    random, turns, now_ms = Random(seed), Turns(), T0
    lines = {}
    taken = []
    for number in range(400):
        every = [each for line in lines.values() for each in line]
        action = random.random()
        if action < 0.45 or not every:
            now_ms += random.randrange(3)
            each = message(number, random.randint(1, 30), now_ms, random.randrange(4))
            turns.add(each)
            lines.setdefault(each.place, []).append(each)
        elif action < 0.6:
            each = random.choice(every)
            turns.lose(each)
            lines[each.place].remove(each)
        elif action < 0.75:
            old = random.choice(every)
            new = message(number, random.randint(1, 30), now_ms, old.partition)
            turns.replace(old, new)
            lines[old.place][lines[old.place].index(old)] = new
            assert new.queued_at_ms == old.queued_at_ms
        elif action < 0.85 and taken:
            put_back(turns, taken)
            lines[taken[0].place] = taken + lines.get(taken[0].place, [])
            taken = []
        else:
            most = random.randint(0, 80)
            planned = turns.plan(most)
            taken = turns.take(most)
            line = lines[taken[0].place]
            assert taken[0].queued_at_ms == min(each[0].queued_at_ms for each in lines.values())
            assert line[: len(taken)] == taken
            assert sum(each.raw_bytes for each in taken) == planned
            rest = line[len(taken) :]
            assert len(taken) == 1 or planned <= most
            assert not rest or planned + rest[0].raw_bytes > most
            lines[taken[0].place] = rest
            taken = taken[random.randrange(len(taken)) :]
        lines = {place: line for place, line in lines.items() if line}
        every = [each for line in lines.values() for each in line]
        assert (turns.length, turns.raw_bytes) == (len(every), sum(each.raw_bytes for each in every))
        assert turns.places == len(lines)
        assert {each.place: payloads(line) for line in lines.values() for each in line[:1]} == {
            place: payloads(each for each in turns if each.place == place) for place in lines
        }
        oldest = turns.oldest()
        assert (None if oldest is None else oldest.queued_at_ms) == min(
            (line[0].queued_at_ms for line in lines.values()), default=None
        )
