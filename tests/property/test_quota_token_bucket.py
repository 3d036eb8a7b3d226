"""The token bucket against a model that goes through time millisecond by millisecond, in exact fractions."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kclient_quota.quota.token_bucket import TokenBucket

moves = st.lists(st.tuples(st.integers(0, 400), st.integers(-20, 60)), max_size=12)


@given(moves, st.integers(1, 30))
def test_tokens_equal_the_model(steps, quota):
    bucket, tokens, now = TokenBucket(4, 250), Fraction(0), 0
    burst = quota  # four windows of a quarter of a second
    for gap, value in steps:
        for _ in range(gap):
            tokens = min(Fraction(burst), tokens + Fraction(quota, 1000))
        now += gap
        tokens = min(Fraction(burst), tokens - value)
        bucket.record(value, quota, now)
        assert bucket.measure(quota, now) == pytest.approx(float(tokens), abs=1e-9)
