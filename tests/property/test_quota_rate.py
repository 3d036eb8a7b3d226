"""The sampled rate against a model that keeps every event and replays Kafka's rules from the first one each time."""

from hypothesis import given, settings
from hypothesis import strategies as st

from kclient_quota.quota.rate import SampledAvg, SampledMax, SampledRate
from kclient_quota.quota.throttle import throttle_time_ms
from tests.property.examples import examples

values = st.integers(-50, 5_000)
gaps = st.one_of(st.integers(0, 300), st.integers(0, 3_000), st.sampled_from([999, 1000, 1001, 10_999, 11_000, 12_000]))
steps = st.lists(st.tuples(gaps, st.one_of(values, st.none())), min_size=1, max_size=60)
shapes = st.sampled_from([(11, 1000), (11, 1000), (1, 1000), (2, 30_000), (5, 250)])


def replay(history, samples, window_ms):
    """All (time, value or None for a look) so far -> the samples that live at the last time, oldest first."""
    ring = []  # dictionaries, the current one last
    for now, value in history:
        if value is None:
            for sample in ring:
                if now - sample["last"] >= samples * window_ms:
                    sample.update(start=now, last=now, values=[])
            if not ring:
                ring = [{"start": now, "last": now, "values": []}]
            continue
        if not ring or now - ring[-1]["start"] >= window_ms:
            ring = [*ring, {"start": now, "last": now, "values": []}][-(samples + 1) :]
        ring[-1]["values"].append(value)
        ring[-1]["last"] = now
    return ring


@given(shapes, steps)
@settings(max_examples=examples(150, 300))
def test_rate_and_window_equal_the_model(shape, moves):
    samples, window_ms = shape
    rate, history, now = SampledRate(samples, window_ms), [], 0
    for gap, value in moves:
        now += gap
        history.append((now, value))
        if value is not None:
            rate.record(value, now)
            continue
        ring = replay(history, samples, window_ms)
        total = sum(value for sample in ring for value in sample["values"])
        elapsed = now - min(sample["start"] for sample in ring)
        while elapsed // window_ms < samples - 1:
            elapsed += window_ms
        assert rate.project(now) == (total, max(elapsed, 1))
        assert rate.total(now) == total
        assert rate.window_size_ms(now) == max(elapsed, 1)
        assert rate.measure(now) == total / (max(elapsed, 1) / 1000)


@given(shapes, steps)
def test_avg_and_max_equal_the_model(shape, moves):
    samples, window_ms = shape
    avg, longest, history, now = SampledAvg(samples, window_ms), SampledMax(samples, window_ms), [], 0
    for gap, value in moves:
        now += gap
        if history or value is not None:  # unlike a rate's, their first sample begins with what is recorded first
            history.append((now, value))
        if value is not None:
            avg.record(value, now)
            longest.record(value, now)
            continue
        found = [value for sample in replay(history, samples, window_ms) for value in sample["values"]]
        if found:
            assert avg.measure(now) == sum(found) / len(found)
            assert longest.measure(now) == max(found)
        else:
            assert str(avg.measure(now)) == str(longest.measure(now)) == "nan"


@given(steps, st.integers(0, 5_000), st.integers(0, 20_000))
def test_unrecord_undoes_record(moves, value, later_ms):
    undone, only_seen = SampledRate(), SampledRate()
    now = 0
    for gap, recorded in moves:
        now += gap
        for rate in (undone, only_seen):
            rate.record(recorded or 0, now)
    undone.record(value, now)
    undone.record(-value, now)
    assert undone.project(now + later_ms) == only_seen.project(now + later_ms)


@given(steps, st.integers(1, 2_000))
def test_whoever_waits_as_long_as_told_is_within_the_quota_soon(moves, quota):
    """Not after one wait: the window shrinks by a second whenever a whole one has passed."""
    rate, now = SampledRate(), 0
    for gap, value in moves:
        now += gap
        rate.record(abs(value or 0), now)
    last = now
    total, window_ms = rate.project(now)
    throttle = throttle_time_ms(total / (window_ms / 1000), quota, window_ms)
    assert total / ((window_ms + throttle + 1) / 1000) <= quota
    while throttle > 0:
        assert now <= last + 12_000
        now += min(throttle, 1_000)
        throttle = throttle_time_ms(rate.measure(now), quota, rate.window_size_ms(now))
    total, window_ms = rate.project(now)
    assert total <= quota * (window_ms + 0.5) / 1000 + 1e-6  # less than half a millisecond is no throttle


@given(steps)
def test_window_holds_the_last_eleven_seconds_and_not_more_than_twelve(moves):
    rate, events, now = SampledRate(), [], 0
    for gap, value in moves:
        now += gap
        rate.record(abs(value or 0), now)
        events.append((now, abs(value or 0)))
        total, window_ms = rate.project(now)
        assert 10_000 <= window_ms < 13_000
        assert total >= sum(value for at, value in events if now - at < 11_000)
        assert total <= sum(value for at, value in events if now - at < 13_000)


@given(steps, st.integers(-(10**12), 10**12))
def test_rebased_clock_changes_nothing(moves, shift_ms):
    moved, still = SampledRate(), SampledRate()
    now = 0
    for gap, value in moves:
        now += gap
        still.record(value or 0, now)
        moved.record(value or 0, now)
    moved.rebase(shift_ms)
    assert moved.project(now + shift_ms + 500) == still.project(now + 500)
