"""The article's formulas, with its letters: x brokers, y partitions, m clients, n bytes a second on one broker."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kclient_quota.admin import capacity
from kclient_quota.admin.usage import parse_usage
from kclient_quota.errors import ConfigError
from kclient_quota.quota.rate import SampledRate


@pytest.mark.parametrize(
    ("x", "y", "m", "n", "each"),
    [(5, 3, 1, 100, 300), (5, 3, 2, 100, 150), (3, 5, 1, 100, 300), (3, 5, 4, 100, 75), (3, 3, 1, 7, 21)],
)
def test_what_each_client_gets(x, y, m, n, each):
    assert capacity.effective_rate(n, x, y, clients=m) == each
    assert capacity.quota_for_rate(each, x, y, clients=m) == n


def test_two_topics_under_one_client_id():
    assert capacity.mixed_rate(1, 2, 4) == 3
    # on the same brokers they have to share: the article's x + y is out of reach
    assert capacity.shared_rates(1, 4, [2, 4]) == (1, 3)
    assert capacity.shared_rates(10, 3, [1]) == (10,)


@given(st.integers(1, 50), st.integers(1, 500))
def test_leaders_are_spread_evenly(brokers, partitions):
    leaders = capacity.even_leaders(brokers, partitions)
    assert (len(leaders), sum(leaders)) == (brokers, partitions)
    assert max(leaders) - min(leaders) <= 1
    whole = capacity.effective_rate(10, brokers, partitions)
    assert capacity.keyed_rate(10, leaders) <= whole + 1e-9
    if partitions % brokers == 0 or partitions < brokers:
        assert capacity.keyed_rate(10, leaders) == pytest.approx(whole)


def test_uneven_leaders_hold_keyed_producers_back():
    assert capacity.keyed_rate(100, [2, 1, 1]) == 200
    with pytest.raises(ConfigError, match="no partition has a leader"):
        capacity.keyed_rate(1, [0, 0])


@pytest.mark.parametrize(("samples", "window_s"), [(11, 1.0), (5, 2.0), (2, 0.5)])
def test_a_burst_is_what_the_brokers_own_window_lets_pass(samples, window_s):
    quota = 1000.0
    burst = capacity.burst(quota, samples=samples, window_s=window_s)
    rate = SampledRate(samples=samples, window_ms=round(window_s * 1000))
    rate.record(burst.bytes, 5_000)
    assert rate.measure(5_000) == quota
    rate.record(1, 5_000)
    assert rate.measure(5_000) > quota
    assert capacity.throttle_after(burst.bytes, quota, samples=samples, window_s=window_s) == 0
    assert capacity.throttle_after(2 * burst.bytes, quota, samples=samples, window_s=window_s) == burst.window_s


def test_batches_and_consumer_quotas():
    assert capacity.smallest_consumer_quota(470_000 - 128) == 47_000
    assert capacity.largest_batch(47_000) == 470_000 - 128
    for batch in (1, 16_384, 1_048_576):
        assert capacity.largest_batch(capacity.smallest_consumer_quota(batch)) >= batch


def test_the_ceiling_of_request_percentage():
    assert capacity.request_percentage_ceiling(8, 3) == 1100


@pytest.mark.parametrize("wrong", [0, -1, float("nan"), float("inf")])
def test_numbers_that_are_none(wrong):
    with pytest.raises(ConfigError, match="must be greater than 0"):
        capacity.effective_rate(wrong, 1, 1)
    with pytest.raises(ConfigError, match="must be greater than 0"):
        capacity.burst(1, samples=1)


PAGE = """# TYPE kafka_server_produce_byte_rate gauge
kafka_server_produce_byte_rate{broker="1",user="",client_id="or\\"ders"} 1000.0
kafka_server_produce_byte_rate{broker="2",user="",client_id="or\\"ders"} 2000.5
kafka_server_fetch_byte_rate{broker="1",user="u",client_id="c"} NaN
kafka_server_fetch_byte_rate{broker="1",user="u",client_id="d"} 4000
"""


def test_usage_of_every_kind():
    peaks = {each.entity: each.quota for each in capacity.advise_from_usage(parse_usage(PAGE, "page"))}
    assert peaks == {'{client-id=or\\"ders} producer_byte_rate': 2501, "{user=u, client-id=d} consumer_byte_rate": 5000}
    rows = '{"user": "a", "rate": 4}\n\n{"client_id": "b", "producer_byte_rate": 10, "consumer_byte_rate": 20}\n'
    assert parse_usage(rows, "f") == [
        ("{user=a}", 4.0),
        ("{client-id=b} producer_byte_rate", 10.0),
        ("{client-id=b} consumer_byte_rate", 20.0),
    ]
    assert parse_usage("user,client_id,rate\na,,4\n", "f") == [("{user=a}", 4.0)]
    assert parse_usage('[{"user": "a", "role": "producer", "byte_rate": 1, "byte_rate_max": NaN}]', "f") == [
        ("{user=a} producer_byte_rate", 1.0)
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "holds no rate"),
        ("{", "f:1: this is no JSON"),
        ("[5]", "an object is wanted"),
        ("a,rate\n1,x\n", "f:2: rate"),
    ],
)
def test_usage_that_is_none(text, words):
    with pytest.raises(ConfigError, match=words):
        parse_usage(text, "f")
    with pytest.raises(ConfigError, match="is no rate"):
        capacity.advise_from_usage([("a", -1.0)])
