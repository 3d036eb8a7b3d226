"""Recommendations tried on usage, against the broker's own quota manager."""

import random
from datetime import UTC, datetime

from kclient_quota.quota.callback import ClientQuotaType
from kclient_quota.quota.entity import ClientQuotaEntity
from kclient_quota.quota.manager import ClientQuotaManager
from kclient_quota.spark.jobs.backtest import backtest, throttling

BEGIN_MS = 1_800_000_000_000
QUOTA = 1_000.0


def by_the_manager(windows):
    manager = ClientQuotaManager(ClientQuotaType.PRODUCE)
    manager.update_quota(ClientQuotaEntity({"client-id": "c"}), QUOTA)
    waiting = total = count = seconds = until = 0
    for begin, end, [(rate, _, _)] in windows:
        for now in range(begin, end, 1_000):
            seconds += 1
            waiting += rate
            if now >= until:
                delay = manager.record_and_get_throttle_time_ms("u", "c", waiting, now)
                waiting = 0
                total += min(delay, windows[-1][1] - now)
                count += delay > 0
                until = now + delay
    return seconds, count, [total]


def windows_of(chance, rate):
    rates = [rate * chance.uniform(0.3, 1.7) for n in range(5)]
    return [(BEGIN_MS + n * 60_000, BEGIN_MS + (n + 1) * 60_000, [(each, each, 0.0)]) for n, each in enumerate(rates)]


def test_throttling_is_what_the_brokers_manager_says():
    chance = random.Random(3)
    throttled = 0
    for rate in (100, 800, 1_000, 1_200, 5_000):
        windows = windows_of(chance, rate)
        found = throttling(windows, QUOTA)
        assert found == by_the_manager(windows)
        throttled += found[1] > 0
    assert throttling(windows_of(chance, 100), QUOTA)[1:] == (0, [0])
    assert throttled >= 3
    seconds, _, (throttled_ms,) = throttling(windows_of(chance, 50_000), QUOTA)
    assert 0.9 * seconds * 1_000 < throttled_ms <= seconds * 1_000


def test_every_client_on_every_broker(spark):
    chance = random.Random(4)
    usage, wanted = [], {}
    for client, rate in (("small", 200), ("large", 4_000)):
        for broker in ("1", "2"):
            windows = windows_of(chance, rate)
            wanted[client, broker] = throttling(windows, QUOTA)
            for begin, end, [(value, _, _)] in windows:
                at = [datetime.fromtimestamp(each / 1000, tz=UTC) for each in (begin, end)]
                usage.append((*at, "u", client, "producer", broker, value))
    usage.append((*at, "u", "large", "producer", None, 9e9))
    names = "window_start timestamp, window_end timestamp, user string, client_id string, role string, "
    frame = spark.createDataFrame(usage, names + "broker string, byte_rate double")
    limits = {"producer_byte_rate": {(None, "small"): QUOTA, (None, "large"): QUOTA}}
    found = {
        (row["client_id"], row["broker"]): (row["seconds"], row["throttles"], [row["throttled_ms"]])
        for row in backtest(frame, limits).collect()
    }
    assert found == wanted
    assert backtest(frame, {}).count() == 0
