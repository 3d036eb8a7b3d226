"""Whatever a client wants to send and when, and wherever the broker's window begins: paced, it is hardly throttled."""

from hypothesis import given, settings
from hypothesis import strategies as st

from kclient_quota.pacing.pacer import Pacer
from tests.unit.pacing.pacing_world import World

phases = st.lists(st.tuples(st.integers(50, 15_000), st.sampled_from(["idle", "busy", "drip"])), min_size=1, max_size=8)


@given(phases, st.sampled_from([20_000, 51_200, 1_048_576]), st.sampled_from([0, 5]), st.integers(0, 20))
@settings(max_examples=60, deadline=None)
def test_no_demand_leads_to_a_throttle_worth_the_name(demands, quota, grant, late_ms):
    starts, start = [], 0
    for duration_ms, kind in demands:
        starts.append((start, kind))
        start += duration_ms

    def demand(_client, at_ms):
        kind = next(kind for begun, kind in reversed(starts) if begun <= at_ms)
        return kind == "busy" or (kind == "drip" and at_ms % 700 < 60)

    world = World(quota, grant=grant, late_ms=late_ms, demand=demand).run(start + 12_000)
    # Lumps of more than a tenth of a second may overlap both ends of a window that is only just full.
    lumpy = grant * world.message_bytes > quota / 10
    # A broker's samples may begin a request (0.1 s) beside ours: after a pause that may cost part of its time.
    assert max(world.throttles(), default=0) <= (150 if lumpy else 60)


operations = st.lists(
    st.one_of(
        st.tuples(st.just("pass"), st.integers(0, 30_000)),
        st.tuples(st.just("jump back"), st.integers(0, 10_000_000)),
        st.tuples(st.just("jump on"), st.integers(0, 10_000_000)),
        st.tuples(st.just("throttle"), st.integers(0, 50_000_000)),
        st.tuples(st.just("limit"), st.integers(1, 10_000_000)),
        st.tuples(st.just("no limit"), st.just(0)),
        st.tuples(st.just("send"), st.integers(0, 2_000_000)),
    ),
    max_size=40,
)


@given(st.one_of(st.none(), st.integers(100, 10_000_000)), operations, st.integers(1, 100_000))
@settings(max_examples=200, deadline=None)
def test_nothing_stops_a_pacer_for_ever(limit, moves, nbytes):
    """After anything at all, whoever comes back when told to gets a message through, without being told too often."""
    pacer, now = Pacer(limit), 10**9
    for verb, number in moves:
        if verb in {"pass", "jump on"}:
            now += number
        elif verb == "jump back":
            now -= number
        elif verb == "throttle":
            pacer.on_throttle(number, now)
        elif verb == "limit":
            pacer.set_limit(number, now)
        elif verb == "no limit":
            pacer.set_limit(None, now)
        else:
            pacer.admit_at_ms(number, now)
            pacer.on_sent(number, now)
    at = pacer.admit_at_ms(nbytes, now)
    for _ in range(1_000):
        if at <= now:
            break
        now = max(now + 1, at)
        at = pacer.admit_at_ms(nbytes, now)
    assert at <= now
