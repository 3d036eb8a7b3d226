"""Whose turn it is of the partitions of a broker, look by look."""

import pytest

from kclient_quota.clients.consumer.reading_turns import EXCUSED_MS, ReadingTurns
from kclient_quota.pacing.fetching.fetch_statistics import FetchStatistics

TURN_MS = 2_000
LOOK_MS = 250


class Broker:
    """Gives a batch of ten of the first partition that has any more, as librdkafka asks: always in the same order.

    Args:
        ends: how much each partition has.
        node: its id.
    """

    def __init__(self, *ends: int, node: int = 1) -> None:
        self.ends = dict(enumerate(ends))
        self.at = dict.fromkeys(self.ends, 0)
        self.node = node
        self.stuck: set[int] = set()
        self.paused: set[tuple[str, int]] = set()

    def seen(self, now_ms: int) -> FetchStatistics:
        positions = {("t", number): (at, self.ends[number]) for number, at in self.at.items()}
        return FetchStatistics(now_ms, 0, 0, {}, dict.fromkeys(positions, self.node), positions)

    def give(self, resting: set[tuple[str, int]]) -> int | None:
        for number, at in self.at.items():
            if at < self.ends[number] and ("t", number) not in resting | self.paused and number not in self.stuck:
                self.at[number] += 10
                return number
        return None


class Reader:
    """Reads of such a broker, a batch each look."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.turns = ReadingTurns()
        self.resting: set[tuple[str, int]] = set()
        self.now_ms = 1_000_000

    def look(self) -> None:
        self.now_ms += LOOK_MS
        seen = self.broker.seen(self.now_ms)
        self.resting = set(self.turns.look(seen, self.broker.paused, self.resting, TURN_MS, self.now_ms))

    def read(self, looks: int) -> list[int | None]:
        found = []
        for _ in range(looks):
            self.look()
            found.append(self.broker.give(self.resting))
        return found


def lengths(found: list[int | None]) -> list[tuple[int | None, int]]:
    """Who was read, and for how many batches on end."""
    runs: list[tuple[int | None, int]] = []
    for each in found:
        if runs and runs[-1][0] == each:
            runs[-1] = each, runs[-1][1] + 1
        else:
            runs.append((each, 1))
    return runs


def test_partitions_that_all_have_more_are_read_in_turns_of_the_same_length() -> None:
    runs = lengths(Reader(Broker(10_000, 10_000, 10_000)).read(100))
    assert [number for number, _ in runs[:7]] == [0, 1, 2, 0, 1, 2, 0]
    assert {count for _, count in runs[1:-1]} == {TURN_MS // LOOK_MS}


def test_who_has_little_is_read_out_while_who_has_much_rests_and_then_that_goes_on() -> None:
    runs = lengths(Reader(Broker(10_000, 10, 20, 30)).read(60))
    assert runs[0][1] < 12
    assert runs[1:4] == [(1, 1), (2, 2), (3, 3)]
    assert runs[4][0] == 0
    assert len(runs) == 5


def test_one_partition_alone_never_rests() -> None:
    assert lengths(Reader(Broker(10_000)).read(60)) == [(0, 60)]


def test_nobody_rests_where_all_are_read_anyway() -> None:
    broker = Broker(10_000, 10_000)
    reader = Reader(broker)
    for _ in range(60):
        reader.look()
        broker.at = {number: at + 10 for number, at in broker.at.items()}
        assert not reader.resting


def test_a_partition_that_the_application_has_paused_is_not_waited_for() -> None:
    broker = Broker(10_000, 10_000)
    broker.paused.add(("t", 1))
    assert lengths(Reader(broker).read(60)) == [(0, 60)]


def test_a_partition_of_which_nothing_comes_in_its_turn_is_excused_for_a_minute() -> None:
    broker = Broker(100_000, 10)
    broker.stuck.add(1)
    runs = lengths(Reader(broker).read(600))
    idle = [count for number, count in runs if number is None]
    assert 2 <= len(idle) <= 600 * LOOK_MS // EXCUSED_MS + 1
    assert max(idle) <= TURN_MS // LOOK_MS + 1


def test_one_that_was_excused_counts_again_once_it_is_read() -> None:
    broker = Broker(100_000, 10_000)
    broker.stuck.add(1)
    reader = Reader(broker)
    reader.read(30)
    broker.stuck.clear()
    broker.at[1] += 10
    runs = lengths(reader.read(60))
    assert [number for number, _ in runs[:4]] == [0, 1, 0, 1]


def test_whoever_rests_when_the_others_go_goes_on() -> None:
    broker = Broker(10_000, 10_000)
    reader = Reader(broker)
    while not reader.resting:
        reader.read(1)
    del broker.at[1]
    assert reader.read(1) == [0]


def test_whoever_goes_is_forgotten() -> None:
    broker = Broker(10_000, 10_000)
    reader = Reader(broker)
    broker.stuck.add(1)
    reader.read(30)
    broker.at = {}
    reader.look()
    turns = reader.turns
    kept = (turns._resting, turns._next, turns._read_ms, turns._passed_ms, turns._excused_until_ms)
    assert not any(kept)


def test_partitions_of_another_broker_are_not_waited_for() -> None:
    near, far = Broker(10_000), Broker(10_000, node=2)
    turns, now_ms = ReadingTurns(), 0
    for _ in range(60):
        now_ms += LOOK_MS
        near.at[0] += 10
        first, second = near.seen(now_ms), far.seen(now_ms)
        positions = {**first.positions, ("u", 0): second.positions["t", 0]}
        seen = FetchStatistics(now_ms, 0, 0, {}, {("t", 0): 1, ("u", 0): 2}, positions)
        assert not turns.look(seen, (), (), TURN_MS, now_ms)


@pytest.mark.parametrize("end", [-1, 0])
def test_a_partition_whose_end_is_unknown_or_reached_is_not_waited_for(end: int) -> None:
    broker = Broker(10_000, end)
    assert lengths(Reader(broker).read(60)) == [(0, 60)]


def test_time_in_which_nobody_looked_is_no_turn() -> None:
    broker = Broker(10_000, 10_000)
    reader = Reader(broker)
    reader.read(2)
    reader.now_ms += 60_000
    reader.read(1)
    assert not reader.resting
