"""What a consumer's core charges, counts and tells, just below, at and above the bounds."""

import json
from types import SimpleNamespace
from typing import Any

import pytest

from kclient_quota.clients.consumer.core import ENDLESS, ConsumerCore, Notice
from kclient_quota.clients.limits import UNKNOWN, Limit
from kclient_quota.config import Backoff, LimitSource
from kclient_quota.pacing.fetching.fetch_sizes import OPEN, FetchSizes, sizes_for
from kclient_quota.pacing.neighbours import Need, Part
from tests.unit.clients.test_consumer_core import QUOTA, limit_of, message, statistics

MINUTE = 60_000


def core_of(
    limit: Limit | None = None,
    sizes: FetchSizes | None = None,
    backoff: Backoff = Backoff.BLOCK,
    neighbours: Any = None,
) -> ConsumerCore:
    return ConsumerCore(backoff, "app", limit or limit_of(QUOTA), sizes or sizes_for(QUOTA), 300_000, 0, neighbours)


def event(at_ms: int = 0, **what: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(statistics(at_ms, **what))
    return found


def told(core: ConsumerCore, word: str = "") -> list[str]:
    found = [notice.text for notice in core.notices if word in notice.text]
    core.notices.clear()
    return found


def metric(core: ConsumerCore, name: str, now_ms: int = 0) -> float:
    (value,) = (value for each, value in core.metrics(now_ms).items() if each.name == name and not each.tag("node-id"))
    return value


# What is charged


def test_a_message_costs_ten_bytes_more_than_its_key_and_value() -> None:
    core = core_of()
    assert core.charge([message(990), message(490)]) == 1_500
    core.charge([message(30)])
    assert core.most_messages(1_000, 400.0) == 10
    assert core.most_messages(1_000, 439.0) == 10
    assert core.most_messages(1_000, 440.0) == 11
    assert core.most_messages(5, 440.0) == 5
    assert core.most_messages(5, 1.0) == 1
    assert core.most_messages(7, ENDLESS) == 7


class Charged(ConsumerCore):
    """Tells what each account is charged."""

    def __init__(self, brokers: int) -> None:
        super().__init__(Backoff.BLOCK, "app", limit_of(QUOTA), sizes_for(QUOTA), 300_000, 0)
        self.charges: list[dict[int, int]] = []
        grant = self._pacer.grant

        def noted(now_ms: int, taken: Any) -> tuple[float, int]:
            self.charges.append(dict(taken))
            return grant(now_ms, taken)

        self._pacer.grant = noted  # type: ignore[method-assign]
        if brokers:
            self.on_statistics(event(brokers=brokers), 0)


def test_before_brokers_are_known_and_with_one_all_is_charged_to_one_account() -> None:
    for brokers, node in ((0, -1), (1, 1)):
        core = Charged(brokers)
        core.charge([message(90, 0), message(190, 7)])
        core.charge([message(40, 0)])
        core.grant(0)
        core.grant(0)
        assert core.charges == [{node: 350}, {}]


def test_with_more_brokers_each_message_is_charged_to_the_leader_of_its_partition() -> None:
    core = Charged(2)
    core.charge([message(90, 0), message(190, 1), message(290, 1), message(900, 9)])
    core.charge([message(40, 0)])
    core.grant(0)
    assert core.charges == [{1: 150, 2: 500}]


def test_a_message_of_no_topic_or_partition_is_charged_to_nobody() -> None:
    core = Charged(2)
    for topic, partition in ((None, 0), ("t", None), (None, None)):
        nothing: Any = type("Nothing", (), {"topic": lambda _, t=topic: t, "partition": lambda _, p=partition: p})
        nothing.__len__ = lambda _: 90
        assert core.charge([nothing()]) == 100
    core.grant(0)
    assert core.charges == [{}]


@pytest.mark.parametrize(("before", "after", "heir"), [(0, 1, 1), (0, 2, 1), (1, 2, 1)])
def test_what_was_charged_to_the_only_account_goes_to_the_first_of_those_that_follow(
    before: int, after: int, heir: int
) -> None:
    core = Charged(before)
    core.charge([message(90)])
    core.on_statistics(event(brokers=after), 0)
    core.charge([message(40)])
    core.grant(0)
    assert core.charges == [{heir: 150}]


def test_what_is_forgotten_is_lost_in_equal_parts_and_with_it_the_partitions_part_of_the_queue() -> None:
    core = core_of()
    core.on_statistics(event(received=10_000, queued=(3_980, 2), brokers=2), 0)
    core.on_forgotten(1_000)
    assert {node: state.lost for node, state in core.state(0).items()} == {1: 500 + 2_000, 2: 500 + 2_000}
    core.on_forgotten(1_000)
    assert metric(core, "quota-fetch-lost-bytes-total") == 5_000
    core.on_statistics(event(250, received=10_000, queued=(0, 0), brokers=2), 250)
    core.on_forgotten(100, [("t", 0)])
    assert {node: state.lost for node, state in core.state(0).items()} == {1: 2_600, 2: 2_500}
    assert metric(core, "quota-fetch-lost-ratio") == 5_100 / 20_000
    core.on_forgotten(90_000, [("t", 1)])
    assert metric(core, "quota-fetch-lost-ratio") == 1.0


def test_what_was_received_in_other_sizes_counts_on() -> None:
    """Another client of librdkafka's counts from nothing: all that had ever been lost was set against what it had."""
    core = core_of(sizes=OPEN)
    core.on_statistics(event(received=10_000), 0)
    core.on_forgotten(1_000)
    wanted = core.other_sizes(0)
    assert wanted is not None
    core.change_sizes(wanted)
    core.on_statistics(event(250, received=500), 250)
    (state,) = core.state(250).values()
    assert (state.admitted, state.lost) == (10_500, 1_000)
    assert metric(core, "quota-fetch-lost-ratio") == 1_000 / 10_500


def test_nothing_received_is_nothing_lost() -> None:
    core = core_of()
    assert (metric(core, "quota-fetch-lost-bytes-total"), metric(core, "quota-fetch-lost-ratio")) == (0.0, 0.0)


# When events were made


def test_the_shortest_way_of_an_event_is_none_and_ten_minutes_more_is_a_clock_that_jumped() -> None:
    def made(*, ms: int, now_ms: int) -> int:
        return core._made_at_ms({"ts": ms * 1_000 + 999}, now_ms)

    core = core_of()
    assert made(ms=1_000, now_ms=5_000) == 5_000
    assert made(ms=2_000, now_ms=6_001) == 6_000
    assert made(ms=2_000, now_ms=6_000 + 600_000) == 6_000
    assert made(ms=3_000, now_ms=6_999) == 6_999  # came quicker: from now on this is none
    assert made(ms=4_000, now_ms=8_000) == 7_999
    assert made(ms=5_000, now_ms=8_999 + 600_001) == 609_000
    assert made(ms=6_000, now_ms=610_001) == 610_000
    assert core_of()._made_at_ms({}, 7) == 7


# What brokers say


def responses(core: ConsumerCore, monkeypatch: pytest.MonkeyPatch, *events: dict[str, Any]) -> list[dict[int, int]]:
    seen: list[dict[int, int]] = []
    monkeypatch.setattr(core._sizing, "look", lambda _, found, __: seen.append(dict(found.received)))
    for each in events:
        core.on_statistics(each, 0)
    return [{node: count for node, (_, count) in found.items()} for found in seen]


def test_answers_that_were_not_throttled_are_counted_and_those_of_the_coordinators_connection_are_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    events = [event(received=received, throttled=throttled) for received, throttled in ((10_000, 0), (25_000, 4))]
    for each in events:
        each["brokers"]["GroupCoordinator"] = {
            "name": "GroupCoordinator", "nodeid": 1, "nodename": "b1:9092", "source": "logical", "rx": 99, "rxbytes": 9
        }  # fmt: skip
    assert responses(core_of(), monkeypatch, *events) == [{1: 10}, {1: 10 + 15 - 4}]


def test_the_time_between_two_events_is_by_our_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    core = core_of()
    elapsed: list[int] = []
    monkeypatch.setattr(core._sizing, "look", lambda *args: elapsed.append(args[2]))
    for now_ms in (250, 500, 1_500):
        core.on_statistics(event(), now_ms)
    assert elapsed == [250, 250, 1_000]


def until(core: ConsumerCore, now_ms: int = 0) -> dict[int, int]:
    return {node: state.throttled_until_ms for node, state in core.state(now_ms).items()}


def test_every_throttle_mutes_its_broker_until_it_is_over_and_a_shorter_one_changes_nothing() -> None:
    for limit in (limit_of(QUOTA), Limit(None, 5.0, LimitSource.CONFIG)):
        core = core_of(limit)
        core.on_statistics(event(brokers=2), 0)
        core.on_throttle("b1:9092/1", 1, 0, 10)
        core.on_throttle("b1:9092/1", 1, -1, 10)
        assert until(core) == {1: 0, 2: 0}
        core.on_throttle("b1:9092/1", 1, 1, 10)
        assert until(core) == {1: 11, 2: 0}
        core.on_throttle("b2:9092/bootstrap", -1, 900, 10)
        core.on_throttle("b2:9092", -1, 500, 11)
        assert until(core) == {1: 11, 2: 910}
        assert until(core, 911) == {1: 0, 2: 0}
        core.on_throttle("nobody:9092", -1, 900, 10)
        core.on_throttle("nobody:9092", 7, 900, 10)
        assert until(core) == {1: 11, 2: 910}


def test_as_long_as_no_broker_is_known_a_throttle_is_anybodys() -> None:
    core = core_of()
    core.on_throttle("b1:9092", -1, 900, 10)
    core.on_throttle("b1:9092", 0, 950, 10)
    assert until(core) == {-1: 960}


def stalled(limit: Limit, throttle_ms: int, sizes: FetchSizes | None = None) -> bool:
    core = core_of(limit, sizes)
    core.on_statistics(event(), 0)
    for now_ms in (0, 20_000):
        core.on_throttle("b1:9092/1", 1, throttle_ms, now_ms)
    assert metric(core, "fetch-stalled-brokers") == (core.state(0)[1].stall is not None)
    return core.state(0)[1].stall is not None


def test_only_who_learns_is_refused_by_a_crowd_for_two_samples_of_the_window() -> None:
    for window_ms in (1_000, 700):
        learns = Limit(None, None, LimitSource.LEARNED, window_ms=window_ms)
        assert not stalled(learns, 2 * window_ms, OPEN)
        assert stalled(learns, 2 * window_ms + 1, OPEN)
    assert stalled(limit_of(QUOTA), 1_500)


def test_with_a_request_quota_a_throttle_of_up_to_a_second_may_be_that_ones() -> None:
    both = Limit(QUOTA, 5.0, LimitSource.CONFIG, window_ms=500)
    assert not stalled(both, 1_000)
    assert stalled(both, 1_001)
    assert stalled(Limit(QUOTA, None, LimitSource.CONFIG, window_ms=500), 501)


def test_a_stall_and_its_end_are_told_by_broker() -> None:
    core = core_of()
    core.on_statistics(event(brokers=2), 0)
    told(core)
    for now_ms in (0, 3_000):
        core.on_throttle("b2:9092/2", 2, 13_500, now_ms)
    (notice,) = core.notices
    assert notice.is_warning
    assert notice.text.startswith("Client 'app', broker 2: stalled: the next batch")
    assert notice.extra == {"client_id": "app", "consumer_byte_rate": QUOTA, "broker_id": 2}
    told(core)
    core.on_statistics(event(3_250, messages=0, brokers=2), 3_250)
    assert told(core) == []
    core.on_statistics(event(3_500, messages=1, brokers=2), 3_500)
    assert told(core) == ["Client 'app', broker 2: messages come again"]
    core.on_statistics(event(3_750, messages=2, brokers=2), 3_750)
    assert told(core) == []


def test_messages_that_were_counted_before_end_no_stall_and_after_a_change_of_sizes_they_count_from_nothing() -> None:
    core = core_of(sizes=OPEN)
    core.on_statistics(event(messages=50), 0)
    for now_ms in (0, 3_000):
        core.on_throttle("b1:9092/1", 1, 13_500, now_ms)
    core.on_statistics(event(3_000, messages=50), 3_000)
    assert metric(core, "fetch-stalled-brokers") == 1.0
    wanted = core.other_sizes(3_000)
    assert wanted not in {None, OPEN}
    core.change_sizes(wanted)
    assert core.sizes == wanted
    core.on_statistics(event(3_250, messages=1), 3_250)
    assert metric(core, "fetch-stalled-brokers") == 0.0


def test_who_is_kept_from_its_group_is_told_once_a_minute_at_most() -> None:
    core = core_of(UNKNOWN)
    empty: dict[str, Any] = {"ts": 0}
    core.on_throttle("b1:9092", -1, 300, 0)
    core.on_statistics(empty, 4_999)
    assert told(core, "joining") == []
    core.on_statistics(empty, 5_000)
    (text,) = told(core, "joining")
    assert "throttled 1 answers for 300 ms" in text


# What users are told


def test_a_cause_is_told_again_after_a_minute_and_no_sooner() -> None:
    core = core_of()
    told(core)
    found = []
    for now_ms in (0, MINUTE - 1, MINUTE, 2 * MINUTE - 1, 2 * MINUTE):
        core._say("a", f"at {now_ms}", now_ms)
        core._say(f"b {now_ms}", "another cause", now_ms)
        found += told(core, "at ")
    assert found == ["at 0", f"at {MINUTE}", f"at {2 * MINUTE}"]
    assert Notice("a") == Notice("a", is_warning=True, extra={})


def test_a_quota_is_told_at_first_where_there_is_one_and_each_time_its_byte_rate_changes() -> None:
    assert told(core_of(limit_of(None))) == []
    assert told(core_of(backoff=Backoff.OFF)) == []
    (text,) = told(core_of(Limit(None, 5.0, LimitSource.CONFIG)))
    assert text.startswith("The consumer quota of client 'app' is request_percentage=5 per broker")
    core = core_of()
    (notice,) = core.notices
    assert notice.text == "The consumer quota of client 'app' is 100,000 B/s per broker, from config"
    assert not notice.is_warning
    assert notice.extra == {"client_id": "app", "consumer_byte_rate": QUOTA, "limit_source": "config"}
    told(core)
    core.on_limit(Limit(float(str(QUOTA)), 5.0, LimitSource.CONFIG))
    core.grant(1)
    assert told(core) == []
    core.on_limit(limit_of(None))
    core.grant(2)
    (text,) = told(core)
    assert text.startswith("From now on the consumer quota of client 'app' is ")
    core.grant(3)
    assert told(core) == []


BY_HAND = FetchSizes(1_048_576, 65_536 * 1_024, by_hand=True)


@pytest.mark.parametrize(
    ("sizes", "backoff", "byte_rate", "warned"),
    [
        (BY_HAND, Backoff.BLOCK, 1_000.0, True),
        (BY_HAND, Backoff.OFF, 1_000.0, False),
        (BY_HAND, Backoff.BLOCK, 100_000_000.0, False),
        (OPEN, Backoff.BLOCK, 1_000.0, False),
    ],
)
def test_sizes_set_by_hand_that_do_not_fit_are_told_of_once(
    sizes: FetchSizes, backoff: Backoff, byte_rate: float, warned: bool
) -> None:
    core = core_of(limit_of(byte_rate), sizes, backoff)
    assert core.paced == (backoff is Backoff.BLOCK and byte_rate > 1_000.0)
    found = []
    for now_ms in (1, 2 * MINUTE, 4 * MINUTE):
        core.on_limit(limit_of(byte_rate))
        core.grant(now_ms)
        core.on_throttle("b1:9092", 1, 500, now_ms)
        found += told(core, "sizes")
    assert len(found) == warned
    assert all("its quota (1,000 B/s per broker" in text for text in found)


def test_a_throttle_alone_tells_of_sizes_that_do_not_fit() -> None:
    core = core_of(limit_of(1_000.0), BY_HAND)
    core.on_throttle("b1:9092", 1, 500, 0)
    assert len(told(core, "sizes")) == 1


def test_times_of_polls_are_told_in_seconds_and_milliseconds() -> None:
    core = core_of()
    core.on_statistics(event(), 1_000)
    assert metric(core, "last-poll-seconds-ago", 3_500) == 2.5
    assert metric(core, "poll-headroom-ms", 3_500) == 297_500.0


def test_the_state_of_a_broker_before_and_after_anything_came() -> None:
    core = core_of()
    (state,) = core.state(0).values()
    assert (state.limit, state.source, state.admitted, state.outstanding, state.stall, state.lost) == (
        QUOTA, "config", 0, 0, None, 0
    )  # fmt: skip
    core.on_statistics(event(received=5_000, queued=(980, 2)), 0)
    (state,) = core.state(0).values()
    assert (state.admitted, state.outstanding) == (5_000, 1_000)


class Neighbours:
    """Shares nothing with anybody, and knows who asked."""

    def __init__(self) -> None:
        self.asked = self.left = 0

    def part(self, who: Any, broker: int | None, need: Need, limit: float) -> Part:
        self.asked += 1
        return SimpleNamespace(byte_rate=limit, sharers=1)  # type: ignore[return-value]

    def leave(self, who: Any) -> None:
        self.left += 1


def test_who_does_not_pace_shares_with_nobody_and_changes_no_sizes() -> None:
    for backoff, counts in ((Backoff.BLOCK, 1), (Backoff.RAISE, 1), (Backoff.OFF, 0)):
        neighbours = Neighbours()
        core = core_of(sizes=OPEN, backoff=backoff, neighbours=neighbours)
        core.leave()
        assert (neighbours.asked, neighbours.left) == (counts, counts)
        assert (core.other_sizes(0) is not None) == bool(counts)
