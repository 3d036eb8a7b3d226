"""What a consumer's core makes of figures that are missing, nothing, or no whole numbers."""

from typing import Any

import pytest

from kclient_quota.clients.consumer.core import ConsumerCore
from kclient_quota.pacing.fetching.fetch_sizes import OPEN
from tests.unit.clients.test_consumer_core_edges import core_of, event, metric, until


def without(found: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in found.items() if key != name}


def stalled(core: ConsumerCore) -> ConsumerCore:
    for now_ms in (0, 3_000):
        core.on_throttle("b1:9092/1", 1, 13_500, now_ms)
    return core


@pytest.mark.parametrize("name", ["rxmsgs", "nothing"])
def test_an_event_of_no_messages_ends_no_stall(name: str) -> None:
    first = stalled(core_of())
    later = core_of(sizes=OPEN)
    later.on_statistics(event(messages=50), 0)
    wanted = stalled(later).other_sizes(3_000)
    assert wanted is not None
    later.change_sizes(wanted)
    for core in (first, later):
        assert metric(core, "fetch-stalled-brokers") == 1.0
        core.on_statistics(without(event(3_250), name), 3_250)
        assert metric(core, "fetch-stalled-brokers") == 1.0
        core.on_statistics(event(3_500, messages=1), 3_500)
        assert metric(core, "fetch-stalled-brokers") == 0.0


def test_what_is_lost_is_a_part_of_what_all_brokers_have_sent_though_one_has_sent_nothing() -> None:
    core = core_of()
    found = event(received=1_000, brokers=2)
    found["brokers"]["b2:9092/2"].update(rx=0, rxbytes=0)
    core.on_statistics(found, 0)
    core.on_forgotten(100, [("t", 0)])
    assert metric(core, "quota-fetch-lost-ratio") == 0.1


@pytest.mark.parametrize(
    ("queued", "nbytes", "lost"), [(3, 0, 2), (3, 1, 2), (3, 2, 2), (4, 1, 2), (4, 2, 3), (0, 3, 2)]
)
def test_halves_of_bytes_are_lost_too(queued: int, nbytes: int, lost: int) -> None:
    """Half of what is queued and half of what was thrown away, to the nearest even byte."""
    core = core_of()
    core.on_statistics(event(received=1_000, queued=(queued, 0), brokers=2), 0)
    core.on_forgotten(nbytes)
    assert {node: state.lost for node, state in core.state(0).items()} == {1: lost, 2: lost}


def test_nothing_is_lost_of_what_nobody_leads() -> None:
    core = core_of()
    core.on_forgotten(1_000)
    core.on_statistics(event(received=1_000), 0)
    core.on_forgotten(1_000, [("t", 5), ("u", 0)])
    core.on_forgotten(1_000, [])
    assert metric(core, "quota-fetch-lost-bytes-total") == 0.0
    core.on_forgotten(1_000, [("t", 0), ("t", 0), ("t", 5)])
    assert metric(core, "quota-fetch-lost-bytes-total") == 1_000.0


def test_events_are_made_at_whole_milliseconds_and_without_a_time_at_none() -> None:
    def made(*, us: int, now_ms: int) -> int:
        return core._made_at_ms({"ts": us}, now_ms)

    core = core_of()
    assert [made(us=1_000_999, now_ms=5_000), made(us=2_000_000, now_ms=6_001)] == [5_000, 6_000]
    assert made(us=2_000_999, now_ms=6_001) == 6_000
    core = core_of()
    assert core._made_at_ms({}, 1_000) == 1_000
    assert made(us=500_000, now_ms=1_600) == 1_500


def test_a_broker_that_throttled_for_longer_stays_muted_and_each_is_muted_for_itself() -> None:
    core = core_of()
    core.on_statistics(event(brokers=2), 0)
    core.on_throttle("b1:9092/1", 1, 2_000, 100)
    core.on_throttle("b2:9092/2", 2, 500, 100)
    core.on_throttle("b1:9092/1", 1, 1_000, 200)
    assert until(core, 100) == {1: 2_000, 2: 500}
    assert until(core, 2_099) == {1: 1, 2: 0}
    assert until(core, 2_101) == {1: 0, 2: 0}


@pytest.mark.parametrize(("batch_bytes", "one"), [(70_000, False), (80_000, True)])
def test_a_grant_is_for_one_message_where_a_batch_stands_for_more_than_three_quarters_of_a_second(
    batch_bytes: int, one: bool
) -> None:
    core = core_of()
    for number in range(5):
        found = event(250 * number, received=number * batch_bytes)
        found["brokers"]["b1:9092/1"]["rx"] = number
        core.on_statistics(found, 250 * number)
    assert core.grants_one is one
