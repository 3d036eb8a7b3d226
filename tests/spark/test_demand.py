"""What clients wanted, and quotas that brokers have room for: against plain Python."""

import contextlib
import io
import math
import random
from datetime import UTC, datetime

import pytest

from kclient_quota.errors import ConfigError
from kclient_quota.spark.jobs.demand import with_demand
from kclient_quota.spark.jobs.recommend import Policy, recommend

BEGIN_S = 1_800_000_000
WINDOW_S = 60
COLUMNS = (
    "window_start timestamp, window_end timestamp, cluster_id string, user string, client_id string, group_id string, "
    "role string, broker string, clients bigint, byte_rate double, request_rate double, throttle_avg_ms double, "
    "throttle_total_ms double, wait_total_ms double, covered_ms double"
)
WHOLE = {"clients": 1, "covered_ms": 60_000.0}


def row(window, client="c", broker=None, **told):
    times = [datetime.fromtimestamp(BEGIN_S + (window + more) * WINDOW_S, tz=UTC) for more in (0, 1)]
    values = {"clients": 1, **told}
    names = [each.split()[0] for each in COLUMNS.split(", ")][8:]
    return (*times, "k", "u", client, None, "producer", broker, *(values.get(name) for name in names))


def demands(spark, rows, **options):
    found = {}
    for each in with_demand(spark.createDataFrame(rows, COLUMNS), **options).collect():
        window = (each["window_start"].timestamp() - BEGIN_S) / WINDOW_S
        assert each["window_end"].timestamp() - each["window_start"].timestamp() == WINDOW_S
        assert (window, each["client_id"], each["broker"]) not in found
        found[window, each["client_id"], each["broker"]] = each["demand"]
    return found


def test_bytes_are_scaled_by_the_time_that_was_waited_or_throttled(spark):
    rows = [
        row(0, "waits", "1", byte_rate=1_000.0),
        row(0, "waits", "2", byte_rate=500.0),
        row(0, "waits", **WHOLE, wait_total_ms=30_000.0, throttle_total_ms=6_000.0),
        row(0, "throttled", "1", **WHOLE, byte_rate=1_000.0, throttle_total_ms=12_000.0),
        row(0, "tells a mean", "1", byte_rate=1_000.0, request_rate=2.0, throttle_avg_ms=300.0, clients=2),
        row(0, "two of them", byte_rate=900.0, clients=2, wait_total_ms=60_000.0, covered_ms=120_000.0),
        row(0, "came late", byte_rate=900.0, wait_total_ms=5_000.0, covered_ms=20_000.0),
        row(0, "always waits", byte_rate=100.0, wait_total_ms=59_900.0, covered_ms=60_000.0),
        row(0, "muted", byte_rate=0.0, throttle_total_ms=60_000.0, covered_ms=60_000.0),
        row(0, "idle", byte_rate=0.0, throttle_total_ms=0.0, covered_ms=60_000.0),
        row(0, "free", byte_rate=70.0),
    ]
    wanted = {
        (0, "waits", "1"): 2_000.0,
        (0, "waits", "2"): 1_000.0,
        (0, "throttled", "1"): 1_250.0,
        (0, "tells a mean", "1"): 1_000.0 / 0.7,
        (0, "two of them", None): 1_800.0,
        (0, "came late", None): 1_200.0,
        (0, "always waits", None): 400.0,
        (0, "muted", None): None,
        (0, "idle", None): 0.0,
        (0, "free", None): 70.0,
    }
    found = demands(spark, rows)
    assert found.keys() == wanted.keys()
    for key, value in wanted.items():
        assert found[key] == (value if value is None else pytest.approx(value)), key
    grown = demands(spark, rows, most_growth=10.0)
    assert grown[0, "always waits", None] == pytest.approx(1_000.0)


def level_of(limits, capacity):
    """By bisection: the level to which all keep, so that what is left adds up to the capacity."""
    low, high = 0.0, max(limits)
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if sum(min(each, middle) for each in limits) <= capacity else (low, middle)
    return low


def quotas_of(spark, rates, policy):
    """(default, overrides) of clients with a rate on some brokers."""
    rows = [row(0, client, broker, byte_rate=rate) for client, (rate, on) in rates.items() for broker in on]
    found = recommend(spark.createDataFrame(rows, COLUMNS), policy).collect()
    by_name = {each["client_id"]: each["value"] for each in found}
    return by_name.pop(None), by_name


def add_up_to_no_more_than(spark, capacity):
    chance = random.Random(capacity)
    rates = {f"c{n:02}": (chance.lognormvariate(8, 1.5), chance.sample("123", chance.randint(1, 2))) for n in range(30)}
    free = Policy(headroom=1.0, default_quantile=0.5)
    default, overrides = quotas_of(spark, rates, free)
    wanted = {name: overrides.get(name, default) for name in rates}
    levels = {}
    for broker in "123":
        limits = [wanted[name] for name, (_, on) in rates.items() if broker in on]
        levels[broker] = math.floor(level_of(limits, capacity) + 1e-6) if sum(limits) > capacity else math.inf
    assert any(level < math.inf for level in levels.values())
    policy = Policy(headroom=1.0, default_quantile=0.5, broker_capacity=float(capacity))
    least, given = quotas_of(spark, rates, policy)
    assert least == min(default, *levels.values())
    for broker in "123":
        assert sum(given.get(name, least) for name, (_, on) in rates.items() if broker in on) <= capacity
    for name, (rate, on) in rates.items():
        value = max(math.ceil(rate / 1024), 1) * 1024.0
        wants = min(max(value, least), *(levels[broker] for broker in on))
        assert given.get(name, least) == wants


def test_quotas_of_a_broker_add_up_to_no_more_than_it_can_do(spark):
    add_up_to_no_more_than(spark, 25_000)


def test_a_capacity_does_not_have_usage_read_many_times(spark):
    """Each part of a plan that is joined to itself is planned and, where Spark sees no sameness, read once more."""
    rows = spark.createDataFrame([row(0, "c", "1", byte_rate=1_000.0)], COLUMNS)
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        recommend(rows, Policy(broker_capacity=1e6)).explain()
    assert 1 <= said.getvalue().count("Scan ExistingRDD") <= 4


def test_a_quota_is_no_more_than_the_most(spark):
    rates = {"small": (2_000.0, "1"), "large": (90_000.0, "1"), "huge": (1e9, "1")}
    policy = Policy(headroom=1.0, default_quantile=0.3, most_bytes_per_second=100_000.0)
    default, overrides = quotas_of(spark, rates, policy)
    assert (default, overrides) == (2_048.0, {"large": 90_112.0, "huge": 100_000.0})


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"most_growth": 0.5}, "most_growth 0.5"),
        ({"most_bytes_per_second": 0.0}, "most_bytes_per_second 0.0: write 1 or more"),
        ({"broker_capacity": math.nan}, "broker_capacity nan: write 1 or more"),
    ],
)
def test_what_is_no_policy(given, words):
    with pytest.raises(ConfigError, match=words):
        Policy(**given)
