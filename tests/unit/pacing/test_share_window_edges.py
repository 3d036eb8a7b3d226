"""A broker's window between question and answer, to the step: 11 samples of a second."""

import pytest

from kclient_quota.pacing.fetching.share_window import ShareWindow

T0 = 1_000_000
RATE = 10_000.0


def window_of(*answers):
    """What was answered: bytes, and between which times."""
    window = ShareWindow()
    for nbytes, asked_ms, came_ms in answers:
        window.answered(nbytes, T0 + asked_ms, T0 + came_ms)
    return window


def fits(window, nbytes, at_ms):
    return window.fits_at_ms(nbytes, RATE, T0 + at_ms) - T0


def test_a_window_is_empty_at_first_and_when_it_is_forgotten():
    window = ShareWindow(7, 500)
    assert (window.samples, window.window_ms, window.longest_ms) == (7, 500, 4_000)
    assert (ShareWindow().samples, ShareWindow().window_ms, ShareWindow().longest_ms) == (11, 1_000, 12_000)
    for _ in range(2):
        assert (window._early.samples, window._early.window_ms, window._early.opened_ms) == (7, 500, None)
        assert (window.total(T0), list(window._answers), window._unsure_until_ms) == (0.0, [], None)
        window.answered(500, T0 - 900, T0)
        assert (window.total(T0), window._early.opened_ms, window._unsure_until_ms) == (500.0, T0 - 900, T0 + 4_000)
        window.forget()


@pytest.mark.parametrize(
    ("asked_ms", "came_ms", "kept"),
    [(20, 50, (20, 50)), (5, 50, (10, 50)), (20, 25, (20, 30)), (40, 25, (30, 30)), (60, 50, (50, 50))],
)
def test_answers_come_in_order(asked_ms, came_ms, kept):
    window = window_of((100, 10, 30), (200, asked_ms, came_ms))
    assert list(window._answers) == [(T0 + 10, T0 + 30, 100), (T0 + kept[0], T0 + kept[1], 200)]
    assert window._early.project(T0 + 60)[0] == 300.0
    assert window.total(T0 + 60) == 300.0


def test_an_answer_is_no_earlier_than_the_one_before_it():
    window = window_of((1, 0, 0), (2, 70, 90), (3, 60, 80))
    assert window._answers[-1] == (T0 + 70, T0 + 90, 3)


def test_where_a_time_is_unknown_what_has_surely_left_is_not_counted():
    window = window_of((20_000, 0, 0), (20_000, 10_500, 11_000))
    assert fits(window, 80_000, 12_040) == 12_040
    assert fits(window, 80_000, 12_041) == 12_041
    assert fits(window, 80_000, 12_039) == 12_040


def test_answers_are_known_for_two_seconds_longer_than_they_can_count():
    window = window_of((1, 0, 0), (2, 13_000, 13_000))
    assert len(window._answers) == 2
    window.answered(3, T0 + 13_001, T0 + 13_001)
    assert [nbytes for _, _, nbytes in window._answers] == [2, 3]


def test_an_answer_is_as_old_as_when_it_came_not_as_when_it_was_asked_for():
    window = window_of((1, 0, 200), (2, 13_000, 13_100))
    assert [nbytes for _, _, nbytes in window._answers] == [1, 2]


@pytest.mark.parametrize(("late_ms", "unsure_until_ms"), [(300, None), (301, T0 + 12_000), (0, None)])
def test_of_an_answer_that_took_long_the_time_is_unknown(late_ms, unsure_until_ms):
    assert window_of((100, -late_ms, 0))._unsure_until_ms == unsure_until_ms


@pytest.mark.parametrize(("nbytes", "at_ms"), [(1, 0), (100_000, 0), (100_001, 12_000)])
def test_what_an_empty_window_takes_is_taken_now(nbytes, at_ms):
    assert fits(ShareWindow(), nbytes, 0) == at_ms


@pytest.mark.parametrize(
    ("now_ms", "at_ms"),
    [(500, 500), (839, 839), (840, 1_040), (841, 1_041), (1_039, 1_059), (1_040, 1_040), (1_060, 1_060)],
)
def test_nothing_is_asked_for_about_the_time_at_which_a_sample_is_full(now_ms, at_ms):
    """The broker looks 40 ms earlier to 150 ms later."""
    assert fits(window_of((100, 0, 0)), 100, now_ms) == at_ms


@pytest.mark.parametrize(
    ("late_ms", "now_ms", "at_ms"),
    [
        (100, 739, 739),  # 150 ms are looked ahead
        (100, 740, 1_040),
        (110, 729, 729),
        (111, 729, 1_049),
        (150, 639, 639),  # 190
        (150, 660, 1_040),
        (300, 359, 359),  # 340
        (300, 360, 1_040),
        (300, 950, 1_050),
    ],
)
def test_as_late_as_answers_were_the_next_may_be(late_ms, now_ms, at_ms):
    assert fits(window_of((100, -late_ms, 0)), 100, now_ms) == at_ms


@pytest.mark.parametrize(
    ("nbytes", "at_ms"),
    [(45_000, 2_000), (45_001, 2_060), (50_000, 2_540), (50_001, 2_560), (54_000, 10_940), (60_001, 11_040)],
)
def test_what_does_not_fit_waits_until_the_window_is_longer_or_a_sample_leaves(nbytes, at_ms):
    """It is 10 s long and as much more as the last second of its oldest sample."""
    assert fits(window_of((55_000, 0, 0)), nbytes, 2_000) == at_ms


@pytest.mark.parametrize(
    ("nbytes", "now_ms", "at_ms"),
    [
        (60_000, 1_000, 1_000),
        (60_001, 1_000, 12_040),
        (80_000, 1_000, 12_040),
        (80_001, 1_000, 12_540),
        (100_000, 1_000, 12_540),
        (100_001, 1_000, 13_000),
        (60_001, 11_999, 12_040),
    ],
)
def test_where_a_time_is_unknown_a_window_is_as_short_and_samples_as_long_lived_as_can_be(nbytes, now_ms, at_ms):
    """20,000 bytes of half a second ago and 20,000 of now, of which only a second is known."""
    window = window_of((20_000, 0, 0), (20_000, -500, 500))
    assert window._unsure_until_ms == T0 + 12_500
    assert fits(window, nbytes, now_ms) == at_ms
    assert window._surely_fits_at_ms(90_000, RATE, T0 + 12_040) == T0 + 12_540


def test_unsureness_ends():
    window = window_of((60_000, -301, 0))
    assert fits(window, 50_000, 11_999) == 12_040
    assert fits(window, 50_000, 12_000) == 12_000
