"""Whatever a producer sends and whenever: the broker hardly throttles it, and it does not wait without need."""

from hypothesis import given, settings
from hypothesis import strategies as st

from kclient_quota.clients.admission import RECORD_BYTES, Gate
from kclient_quota.pacing.pacer import Pacer
from kclient_quota.quota.rate import SampledRate
from kclient_quota.quota.throttle import throttle_time_ms

ROUND_TRIP_MS = 4
FRAME_BYTES = 110


def play(limit: int, messages: list[tuple[int, int]]) -> tuple[int, int, int]:
    """Messages as (bytes, ms that the application takes before the next).

    Returns:
        the longest throttle and the longest wait, both in ms, and when the last message went.
    """
    gate, window = Gate(Pacer(limit), limit), SampledRate()
    now_ms = longest_throttle_ms = longest_wait_ms = batch = 0

    def send() -> int:
        nonlocal batch
        if not batch:
            return 0
        nbytes, batch = batch + FRAME_BYTES, 0
        at_ms = now_ms + ROUND_TRIP_MS
        window.record(nbytes, at_ms)
        throttle_ms = max(0, throttle_time_ms(window.measure(at_ms), limit, window.window_size_ms(at_ms)))
        gate.on_wire(nbytes)
        gate.settle(gate.handed, at_ms)
        if throttle_ms:
            gate.on_throttle(throttle_ms, at_ms)
        return throttle_ms

    for size, think_ms in messages:
        cost = size + RECORD_BYTES
        begin_ms = now_ms
        while wait_ms := gate.admit(cost, now_ms):
            longest_throttle_ms = max(longest_throttle_ms, send())
            now_ms += min(wait_ms, 100)
        longest_wait_ms = max(longest_wait_ms, now_ms - begin_ms)
        gate.left -= cost
        batch += cost
        if think_ms:
            longest_throttle_ms = max(longest_throttle_ms, send())
            now_ms += think_ms
    return longest_throttle_ms, longest_wait_ms, now_ms


small = st.integers(min_value=0, max_value=2_000)
thinking = st.one_of(st.just(0), st.just(0), st.just(0), st.integers(min_value=1, max_value=3_000))


@settings(max_examples=60, deadline=None)
@given(st.sampled_from([20_000, 51_200, 1_000_000]), st.lists(st.tuples(small, thinking), min_size=200, max_size=600))
def test_no_throttle_exceeds_a_second_and_no_wait_does_either(limit: int, messages: list[tuple[int, int]]) -> None:
    throttle_ms, wait_ms, _ = play(limit, messages)
    assert throttle_ms <= 1_000
    assert wait_ms <= 2_000


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(small, st.integers(min_value=500, max_value=3_000)), min_size=50, max_size=200))
def test_who_sends_less_than_the_quota_hardly_waits(messages: list[tuple[int, int]]) -> None:
    _, wait_ms, _ = play(20_000, messages)
    assert wait_ms <= 200


@settings(max_examples=30, deadline=None)
@given(st.sampled_from([20_000, 51_200, 1_000_000]), st.lists(small, min_size=20, max_size=50))
def test_who_never_pauses_gets_the_quota(limit: int, sizes: list[int]) -> None:
    repeated = [(size, 0) for size in sizes] * max(1, limit * 40 // (sum(sizes) + 20 * len(sizes) + 1))
    _, _, end_ms = play(limit, repeated)
    sent = sum(size + RECORD_BYTES for size, _ in repeated)
    # 11 % at most goes into framing, and that only for the smallest limit.
    assert sent >= 0.85 * limit * end_ms / 1_000 - limit
