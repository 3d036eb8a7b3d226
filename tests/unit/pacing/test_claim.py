"""What is claimed beside clients that never give way, and when nothing is."""

import pytest

from kclient_quota.pacing.claim import LASTS_MS, LET_OFF_MS, MOST_PART, PATIENCE_MS, Claim

T0 = 1_000_000


def throttled(claim, now_ms, until_ms, throttle_ms=2_000, had=lambda claim: claim.part or 0.001, aimed_at=0.02):
    """Every answer carries a throttle; what was claimed was had."""
    while now_ms < until_ms:
        claim.on_throttle(throttle_ms, had(claim), aimed_at, now_ms)
        now_ms += throttle_ms
    return now_ms


def test_whoever_is_muted_again_and_again_claims_up_to_a_quarter():
    claim = Claim()
    now = throttled(claim, T0, T0 + PATIENCE_MS)
    assert (claim.part, claim.every_ms) == (0.0, 0.0)
    before = 0.0
    for _ in range(200):
        now = throttled(claim, now, now + 1)
        if now >= T0 + LASTS_MS:
            break
        assert claim.part >= before
        before = claim.part
    assert before == MOST_PART
    assert claim.every_ms == pytest.approx(2_000)
    throttled(claim, now, now + 1)
    assert claim.part == 0.0, "it looks whether the others give way by now"


def test_whoever_gets_what_they_aim_at_claims_nothing():
    claim = Claim()
    throttled(claim, T0, T0 + 10 * PATIENCE_MS, had=lambda _: 0.0051)
    assert claim.part == 0.0


def test_nothing_is_claimed_once_throttles_let_off():
    claim = Claim()
    now = throttled(claim, T0, T0 + 2 * PATIENCE_MS)
    assert claim.part > 0
    throttled(claim, now + LET_OFF_MS, now + LET_OFF_MS + 1)
    assert claim.part == 0.0
    throttled(claim, now + LET_OFF_MS, now + LET_OFF_MS + PATIENCE_MS - 2_000)
    assert claim.part == 0.0


def test_what_is_not_used_does_not_grow():
    claim = Claim()
    throttled(claim, T0, T0 + 5 * PATIENCE_MS, had=lambda _: 0.001)
    assert 0.0 < claim.part < 0.003


def test_throttles_twice_as_long_bring_claims_down_and_equals_meet():
    """Two claim; throttles are as long as what both have makes them."""
    claims = [Claim(), Claim()]
    first = [0.0005, 0.004]
    apart = []
    now = T0
    while now < T0 + LASTS_MS - 10_000:
        both = sum(claim.part for claim in claims)
        throttle_ms = int(1_000 * (1 + 6 * both))
        for claim, least in zip(claims, first, strict=True):
            claim.on_throttle(throttle_ms, claim.part or least, 0.02, now)
        if all(claim.part for claim in claims):
            apart.append(max(claim.part for claim in claims) / min(claim.part for claim in claims))
        now += throttle_ms
        assert throttle_ms < 3_500
    assert apart[0] == pytest.approx(8)
    assert apart[-1] < 1.5


def test_the_clock_may_jump():
    steady, jumped = Claim(), Claim()
    now = throttled(steady, T0, T0 + 2 * PATIENCE_MS)
    throttled(jumped, T0, T0 + 2 * PATIENCE_MS)
    jumped.rebase(-3_600_000)
    throttled(steady, now, now + 20_000)
    throttled(jumped, now - 3_600_000, now - 3_600_000 + 20_000)
    assert steady.part == jumped.part > 0
    assert steady.every_ms == jumped.every_ms


def test_throttles_of_half_a_day_are_not_made_up_for_at_once():
    claim = Claim()
    throttled(claim, T0, T0 + LASTS_MS - 10_000, throttle_ms=60_000)
    assert claim.part > 0
    assert claim.every_ms == PATIENCE_MS
    claim.on_throttle(43_200_000, claim.part, 0.02, T0 + LASTS_MS - 1_000)
    assert claim.every_ms == PATIENCE_MS
