"""Whose turn it is of the partitions of a broker, look by look."""

from itertools import pairwise
from typing import Any

import pytest
from confluent_kafka import TopicPartition

from kclient_quota.clients.consumer.reading_turns import LUMPS, ReadingTurns
from kclient_quota.clients.consumer.receiving.fetching import Fetching
from kclient_quota.config import Backoff
from kclient_quota.pacing.fetching.fetch_sizes import FetchSizes
from kclient_quota.pacing.fetching.fetch_statistics import FetchStatistics
from tests.unit.clients.test_consumer_core import QUOTA
from tests.unit.clients.test_consumer_core_edges import core_of, event

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
        self.aborted: dict[int, range] = {}
        self.given = dict.fromkeys(self.ends, -1)

    def seen(self, now_ms: int) -> FetchStatistics:
        positions = {("t", number): (at, self.ends[number]) for number, at in self.at.items()}
        given = {("t", number): at for number, at in self.given.items()}
        return FetchStatistics(now_ms, 0, 0, {}, dict.fromkeys(positions, self.node), positions, given)

    def give(self, resting: set[tuple[str, int]]) -> int | None:
        for number in self.aborted:
            if ("t", number) in resting:
                self.at[number] = max(0, self.given[number])
        for number, at in self.at.items():
            if at < self.ends[number] and ("t", number) not in resting | self.paused and number not in self.stuck:
                self.at[number] += 10
                if at not in self.aborted.get(number, ()):
                    self.given[number] = self.at[number]
                return number
        return None


class Reader:
    """Reads of such a broker, a batch each look."""

    def __init__(self, broker: Broker, turn_ms: int = TURN_MS) -> None:
        self.broker = broker
        self.turn_ms = turn_ms
        self.turns = ReadingTurns()
        self.resting: set[tuple[str, int]] = set()
        self.now_ms = 1_000_000

    def look(self, after_ms: int = LOOK_MS) -> None:
        self.now_ms += after_ms
        seen = self.broker.seen(self.now_ms)
        self.resting = set(self.turns.look(seen, self.broker.paused, self.resting, self.turn_ms, self.now_ms))

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
    began = [sum(count for _, count in runs[:place]) for place, (number, _) in enumerate(runs) if number is None]
    assert [(second - first) * LOOK_MS for first, second in pairwise(began)] == [63_750] * 2
    idle = [count for number, count in runs if number is None]
    assert len(idle) == 3
    assert set(idle) == {TURN_MS // LOOK_MS}


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
    kept = (turns._resting, turns._next, turns._read_ms, turns._passed_ms, turns._excused_until_ms, turns._given)
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


@pytest.mark.parametrize("begins", [0, 30, 80])
def test_an_aborted_transaction_of_more_than_a_turn_is_read_on_end(begins: int) -> None:
    """Nothing of it is handed over, and after a rest librdkafka begins behind what was."""
    broker = Broker(10_000, 10_000, 10_000)
    broker.aborted[0] = range(begins, begins + 200)
    runs = lengths(Reader(broker).read(120))
    assert [number for number, _ in runs[:9]] == [0, 1, 2, 0, 1, 2, 0, 1, 2]
    longest = max(count for number, count in runs if number == 0)
    assert 20 <= longest <= 22
    assert broker.given[0] > begins + 200
    assert {count for number, count in runs[1:-1] if number != 0} == {TURN_MS // LOOK_MS}


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


@pytest.mark.parametrize("looks", [1, 2, 7])
def test_a_turn_is_of_twenty_fetches_however_seldom_one_comes(looks: int) -> None:
    broker = Broker(100_000, 100_000)
    reader = Reader(broker, turn_ms=LUMPS * looks * LOOK_MS)
    fetched = []
    for _ in range(5 * LUMPS):
        fetched.append(broker.give(reader.resting))
        for _ in range(looks):
            reader.look()
    assert lengths(fetched)[1:4] == [(1, LUMPS), (0, LUMPS), (1, LUMPS)]  # of the first one nobody knows when it began


def test_a_fetch_that_was_waited_for_in_vain_before_is_no_whole_turn() -> None:
    """The broker was muted, or had nothing."""
    broker = Broker(10_000, 10_000)
    reader = Reader(broker)
    for _ in range(3 * TURN_MS // LOOK_MS):
        reader.look()
    reader.read(TURN_MS // LOOK_MS // 2)
    assert not reader.resting


def test_looks_need_not_fall_on_the_end_of_a_turn() -> None:
    broker = Broker(10_000, 10_000)
    reader = Reader(broker)
    looks = 0
    while not reader.resting:
        reader.look(300)
        broker.give(reader.resting)
        looks += 1
    assert looks == 1 + 7  # the first tells of nothing that was read
    assert reader.resting == {("t", 0)}


def test_a_partition_that_is_begun_again_further_back_has_not_been_read() -> None:
    broker = Broker(10_000, 10_000)
    broker.at = {0: 5_000, 1: 0}
    reader = Reader(broker)
    for _ in range(20):
        reader.look()
        broker.at[0] -= 10
    assert not reader.resting
    assert not reader.turns._read_ms


def test_nothing_comes_of_one_broker_while_another_is_read() -> None:
    """What rests at one goes on when the rest of that one is stuck, however much comes of the other."""
    first, second = Broker(10_000, 10_000), Broker(10_000, node=2)
    turns, now_ms = ReadingTurns(), 1_000_000
    resting: set[tuple[str, int]] = set()
    rested = []
    for number in range(40):
        now_ms += LOOK_MS
        second.at[0] += 10
        here, there = first.seen(now_ms), second.seen(now_ms)
        positions = {**here.positions, ("u", 0): there.positions["t", 0]}
        seen = FetchStatistics(now_ms, 0, 0, {}, {**here.leaders, ("u", 0): 2}, positions)
        resting = set(turns.look(seen, (), resting, TURN_MS, now_ms))
        rested += [number] if resting else []
        first.stuck = {1}
        first.give(resting)
    assert rested == list(range(rested[0], rested[0] + TURN_MS // LOOK_MS))


def test_who_waits_for_its_turn_waits_no_longer_because_others_of_another_broker_begin_to_rest() -> None:
    turns, now_ms = ReadingTurns(), 1_000_000
    resting: set[tuple[str, int]] = set()
    brokers = [Broker(100_000, 100_000, node=node) for node in range(6)]
    first: dict[int, int] = {}
    for look in range(100):
        now_ms += LOOK_MS
        seen = [broker.seen(now_ms) for broker in brokers]
        positions = {(f"of {node}", part[1]): at for node, one in enumerate(seen) for part, at in one.positions.items()}
        leaders = {part: int(part[0].removeprefix("of ")) for part in positions}
        resting = set(turns.look(FetchStatistics(now_ms, 0, 0, {}, leaders, positions), (), resting, TURN_MS, now_ms))
        for node, broker in enumerate(brokers):
            if look >= node * 2:  # one after the other, so that their turns end at different times
                given = broker.give({("t", number) for topic, number in resting if topic == f"of {node}"})
                if given == 1:
                    first.setdefault(node, (look - node * 2) * LOOK_MS)
    assert len(first) == len(brokers)
    assert max(first.values()) <= TURN_MS + 2 * LOOK_MS


class Told(ReadingTurns):
    """Notes how long a turn is said to be."""

    def __init__(self) -> None:
        super().__init__()
        self.turn_ms = 0.0

    def look(
        self, seen: FetchStatistics, paused: Any, resting: Any, turn_ms: float, now_ms: int
    ) -> set[tuple[str, int]]:
        self.turn_ms = turn_ms
        return {("t", 0)}


@pytest.mark.parametrize(
    ("lump_bytes", "turn_ms"), [(QUOTA // 10, 2_000), (QUOTA // 10 + QUOTA / 20_000, 2_001), (QUOTA / 2, 10_000)]
)
def test_a_turn_is_of_two_seconds_or_twenty_fetches(lump_bytes: float, turn_ms: float) -> None:
    core = core_of()
    core._turns = turns = Told()
    core._sizing._looks, core._sizing._bytes, core._sizing._batches = 2, lump_bytes, 1.0
    assert core.resting((), (), 0) == set()  # nothing has been told yet
    core.on_statistics(event(), 0)
    assert core.resting((), (), 0) == {("t", 0)}
    rate = min(pace.rate for pace in core._pacer.paces.values())
    assert turns.turn_ms == pytest.approx(max(2_000, turn_ms * QUOTA / rate), abs=50)


def test_nobody_takes_turns_where_sizes_are_the_users_batches_unknown_or_nothing_is_paced() -> None:
    by_hand, unknown = core_of(sizes=FetchSizes(1_000, 1_000, by_hand=True)), core_of()
    off = core_of(backoff=Backoff.OFF)
    for core in (by_hand, unknown, off):
        core._turns = Told()
        core.on_statistics(event(), 0)
        if core is not unknown:
            core._sizing._looks, core._sizing._bytes, core._sizing._batches = 2, 1_000.0, 1.0
        assert core.resting((), (), 0) == set()


class Source:
    """What a consumer pauses and resumes, and where a signal may end that."""

    def __init__(self) -> None:
        self._kq_resting = self._kq_turns = self._kq_paused = frozenset[tuple[str, int]]()
        self._kq_paused_by_us: list[TopicPartition] = []
        self.paused: set[tuple[str, int]] = set()
        self.is_interrupted = False

    def _kq_pause_source(self, partitions: list[Any], *, is_paused: bool) -> None:
        if self.is_interrupted:
            raise KeyboardInterrupt
        change = self.paused.update if is_paused else self.paused.difference_update
        change({(part.topic, part.partition) for part in partitions})

    def rest(self, *numbers: int, is_interrupted: bool = False) -> None:
        self.is_interrupted = is_interrupted
        Fetching._kq_rest(self, frozenset(("t", number) for number in numbers))  # type: ignore[arg-type]


def test_what_there_is_no_room_for_stays_paused_when_its_rest_ends() -> None:
    source = Source()
    source.rest(0, 1)
    source._kq_paused_by_us = [TopicPartition("t", 1)]
    source.rest()
    assert source.paused == {("t", 1)}


@pytest.mark.parametrize("numbers", [(), (1,), (0, 1)])
def test_what_a_signal_ends_leaves_no_partition_paused_for_ever(numbers: tuple[int, ...]) -> None:
    source = Source()
    source.rest(0)
    with pytest.raises(KeyboardInterrupt):
        source.rest(*numbers, is_interrupted=True)
    assert source.paused <= source._kq_resting
    source.rest(*numbers)
    assert source.paused <= source._kq_resting == {("t", number) for number in numbers}
    source.rest()
    assert not source.paused


def test_what_the_application_has_paused_is_not_resumed() -> None:
    source = Source()
    source.rest(0, 1)
    source._kq_paused = frozenset({("t", 0)})
    source.rest()
    assert source.paused == {("t", 0)}
