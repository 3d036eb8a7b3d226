"""A consumer's copy of the broker's window, against Kafka's own, to the step and the byte."""

import random

import pytest

from kclient_quota.pacing.fetch_window import STEP_MS, FetchWindow
from kclient_quota.quota.rate import SampledRate


def test_a_window_is_of_eleven_seconds_unless_it_is_said() -> None:
    window = FetchWindow()
    assert (window.samples, window.window_ms, window.least_window_ms, window.expected) == (11, 1_000, 10_000, None)
    other = FetchWindow(4, 250)
    assert (other.samples, other.window_ms, other.least_window_ms) == (4, 250, 750)
    other.received(100, 0)
    other.forget()
    assert (other.total(0), other.size_ms(0), other.least_window_ms) == (0, 750, 750)


def fits_first(events: list[tuple[int, float]], shape: tuple[int, int], nbytes: float, rate: float, now_ms: int) -> int:
    """By looking every 20 ms, 40 ms before and after, into a window that is made anew each time."""

    def fits(at_ms: int) -> bool:
        kafka = SampledRate(*shape)
        for event in events:
            kafka.record(event[1], event[0])
        total, size_ms = kafka.project(at_ms)
        return (total + nbytes) * 1_000 <= rate * size_ms

    at_ms = now_ms
    while not (fits(at_ms - 40) and fits(at_ms + 40)):
        at_ms += 20
    return at_ms


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("shape", [(11, 1_000), (4, 250), (2, 700)])
def test_a_batch_fits_as_soon_as_it_does_forty_milliseconds_before_and_after(seed: int, shape: tuple[int, int]) -> None:
    chance = random.Random(seed)
    window = FetchWindow(*shape)
    span_ms = (shape[0] + 1) * shape[1]
    events = sorted((chance.randrange(span_ms), float(chance.randrange(1_000, 60_000))) for _ in range(6))
    for at_ms, nbytes in events:
        window.received(nbytes, at_ms)
    now_ms = events[-1][0] + chance.randrange(200)
    for nbytes in (0, 5_000, 20_000):
        rate = (sum(event[1] for event in events) / 3 + nbytes) / (shape[0] - 1) / shape[1] * 1_000
        expected = fits_first(events, shape, nbytes, rate, now_ms)
        assert window.fits_at_ms(nbytes, rate, now_ms) == min(expected, now_ms + span_ms)


def test_what_fits_to_the_byte_fits() -> None:
    window = FetchWindow()
    assert window.fits_at_ms(1_000_000, 100_000, 500) == 500
    assert window.fits_at_ms(1_000_000.5, 100_000, 500) == 12_500
    window.received(400_000, 0)
    assert window.fits_at_ms(600_000, 100_000, 0) == 0
    # At 1,001 ms the window is as long as 10,001 ms: but it must fit 40 ms before that, too.
    assert window.fits_at_ms(600_001, 100_000, 0) == 60
    # As long as the sample is in the window it has at most 11 s less a millisecond.
    assert window.fits_at_ms(699_000, 100_000, 0) == 11_040


@pytest.mark.parametrize(("samples", "window_ms"), [(11, 1_000), (3, 700)])
def test_what_never_fits_waits_until_all_has_left(samples: int, window_ms: int) -> None:
    window = FetchWindow(samples, window_ms)
    span_ms = (samples + 1) * window_ms
    assert window.fits_at_ms(1e9, 1.0, 100) == 100 + span_ms
    for expected_ms, more_ms in ((50, 0), (100, 0), (101, 1), (600, 500)):
        window.expect(1, expected_ms)
        assert window.fits_at_ms(1e9, 1.0, 100) == 100 + span_ms + more_ms


def test_what_came_counts_from_when_it_came_and_never_before_what_came_last() -> None:
    window = FetchWindow(2, 1_000)
    window.received(10, 1_000)
    window.received(20, 999)
    assert list(window._events) == [(1_000, 10), (1_000, 20)]
    window.received(40, 1_005)
    window.received(80, 1_002)
    assert list(window._events)[2:] == [(1_005, 40), (1_005, 80)]
    assert window.total(1_005) == 150


def test_an_event_is_forgotten_a_window_after_it_cannot_matter() -> None:
    window = FetchWindow(2, 1_000)
    window.received(10, 0)
    window.received(20, 1)
    window.received(30, 3_000)
    assert list(window._events) == [(0, 10), (1, 20), (3_000, 30)]
    window.received(40, 3_001)
    assert list(window._events) == [(1, 20), (3_000, 30), (3_001, 40)]
    window.received(50, 6_100)
    assert list(window._events) == [(6_100, 50)]


def test_what_is_expected_is_in_the_window_but_has_not_arrived() -> None:
    window = FetchWindow(2, 1_000)
    window.received(100, 0)
    window.expect(40, 500)
    assert (window.total(600), window.received_total(600)) == (140, 100)
    # The sample has left, what is expected was recorded in it.
    assert (window.total(2_500), window.received_total(2_500)) == (0, 0)
    window.postpone(1_500)
    assert (window.total(2_499), window.received_total(2_499)) == (40, 0)
    assert window.arrived() == 1_500
    assert (window.total(1_600), window.received_total(1_600)) == (100, 100)
    window.postpone(1_700)
    assert window.expected is None


def test_what_is_expected_before_what_came_last_counts_from_there() -> None:
    window = FetchWindow(2, 1_000)
    window.received(100, 100)
    window.received(7, 900)
    window.expect(40, 500)
    assert window.total(2_899) == 147
    assert window.total(2_900) == 0
    window.forget()
    assert (window.expected, window.total(2_000)) == (None, 0)
    window.expect(4_000, 500)
    assert window.total(2_499) == 4_000
    assert window.total(2_500) == 0


def test_what_is_received_after_an_expectation_is_counted_once() -> None:
    window = FetchWindow(11, 1_000)
    window.received(100, 0)
    window.expect(40, 100)
    assert window.total(100) == 140
    assert window.arrived() == 100
    window.received(30, 100)
    window.received(7, 200)
    assert window.total(200) == 137


@pytest.mark.parametrize(("at_ms", "size_ms"), [(0, 10_000), (999, 10_999), (1_000, 10_000), (10_999, 10_999)])
def test_a_window_stands_for_the_time_that_kafka_takes_it_for(at_ms: int, size_ms: int) -> None:
    window = FetchWindow()
    window.received(1, 0)
    assert window.size_ms(at_ms) == size_ms


@pytest.mark.parametrize("seed", range(20))
def test_what_was_found_stands_until_something_comes(seed: int) -> None:
    """It was looked for anew for each message: of a batch that a window is full of up to a thousand times a second."""
    chance = random.Random(seed)
    window, fresh = FetchWindow(), FetchWindow()
    now_ms, asked = 0, []
    for _ in range(200):
        now_ms += chance.choice((0, 1, 7, 90, 900))
        if chance.random() < 0.2:
            nbytes = chance.uniform(0, 400_000)
            window.received(nbytes, now_ms)
            fresh.received(nbytes, now_ms)
        if chance.random() < 0.1:
            window.expect(50_000, now_ms + 30)
            fresh.expect(50_000, now_ms + 30)
        if chance.random() < 0.1:
            assert window.arrived() == fresh.arrived()
        found = window.fits_at_ms(200_000, 100_000, now_ms)
        fresh._fits = None
        looked_for = fresh.fits_at_ms(200_000, 100_000, now_ms)
        fresh._fits = None
        assert found >= now_ms
        assert fresh.fits_at_ms(200_000, 100_000, found) == found, "it fits then"
        asked.append(abs(found - looked_for) < STEP_MS)
    assert sum(asked) >= 180, "nor is it later, but where it fits for less than a step before"
    window._mirror = pytest.fail  # type: ignore[method-assign, assignment]
    assert window.fits_at_ms(200_000, 100_000, now_ms) == found
