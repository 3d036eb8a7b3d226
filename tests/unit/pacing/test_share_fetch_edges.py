"""When a share consumer may ask, in exact numbers: windows, lumps and paces of brokers say what they are told to."""

from math import inf

import pytest

from kclient_quota.pacing.fetching.share_fetch import ANY_BROKER, SharePacer, ShareState, _Account, wire_bytes

T0 = 1_000_000
ENDLESS = float("inf")


class Told:
    """Answers what it is told to, and notes what it hears."""

    def __init__(self, **told):
        self.heard = []
        self.told = told

    def __getattr__(self, name):
        if name in self.told:
            return lambda *asked: self.heard.append((name, *asked)) or self.told[name]
        return lambda *asked: self.heard.append((name, *asked))


def account_of(
    *,
    level=0.0,
    level_ms=0,
    lumps=False,
    lumps_ms=0,
    fits_at_ms=0,
    limit=100_000.0,
    rate=80_000.0,
    ceiling=None,
    **pace,
):
    account = _Account(limit, 11, 1_000, T0)
    share = Told()
    share.limit, share.rate, share.ceiling = limit, rate, limit if ceiling is None else ceiling
    told = {"big_batches": False, "throttled_until_ms": T0, "batch": 5_000.0, "rate": 70_000.0, **pace}
    account.pace = Told(settle=level, wait_ms=level_ms)
    vars(account.pace).update(told, share=share)
    account.lumps = Told(wait_ms=lumps_ms, are_for=lumps)
    account.window = Told(fits_at_ms=fits_at_ms, total=0.0)
    account.window.least_window_ms = 10_000
    account.pace.window = account.window
    return account


# One broker -------------------------------------------------------------------------------------------------------


def test_an_account_begins_with_nothing():
    account = _Account(50_000.0, 7, 500, T0)
    assert (account.window.samples, account.window.window_ms, account.pace.window) == (7, 500, account.window)
    assert (account.pace.share.limit, account.pace.throttled_until_ms) == (50_000.0, T0)
    assert (account.lumps._kept_ms, account.lumps._window_ms) == (3_500, 500)
    assert (account.paid, account.looked_until_ms, account.too_large, account.received_bytes) == (0.0, T0, 0, 0)


def test_what_was_received_is_paid_for_once():
    account = account_of()
    account.paid = 700.0
    account.wait_ms(0, T0, alone=True)
    account.wait_ms(0, T0 + 5, alone=True)
    assert account.pace.heard == [
        ("settle", 700.0, T0),
        ("wait_ms",),
        ("settle", 0.0, T0 + 5),
        ("wait_ms",),
    ]


@pytest.mark.parametrize(
    ("told", "alone", "wait_ms"),
    [
        ({"level": ENDLESS, "level_ms": 40, "throttled_until_ms": T0 + 9}, True, 0),
        ({"level_ms": 40}, True, 40),
        ({"level_ms": 40, "big_batches": True}, True, 0),
        ({"level_ms": 40, "lumps": True, "lumps_ms": 60}, True, 60),
        ({"level_ms": 40, "lumps": True, "lumps_ms": 60}, False, 40),
        ({"level_ms": 40, "lumps": True, "lumps_ms": 60, "limit": None, "ceiling": 1e6}, True, 40),
        ({"level_ms": 40, "throttled_until_ms": T0 + 39}, True, 40),
        ({"level_ms": 40, "throttled_until_ms": T0 + 41}, True, 41),
        ({"fits_at_ms": T0 + 300}, True, 300),
        ({"fits_at_ms": T0 + 300, "level_ms": 1}, True, 1),
        ({"fits_at_ms": T0 + 300, "throttled_until_ms": T0 - 5}, True, 300),
        ({"fits_at_ms": T0 - 5}, True, 0),
        ({"fits_at_ms": T0 + 1_500}, True, 1_500),
    ],
)
def test_the_level_the_throttle_and_then_the_window_are_waited_for(told, alone, wait_ms):
    account = account_of(**told)
    assert account.wait_ms(0, T0, alone=alone) == wait_ms
    looked = told.get("level") is None and wait_ms == max(0, told.get("fits_at_ms", 0) - T0)
    assert len(account.window.heard) == looked
    assert account.looked_until_ms == T0 + (min(wait_ms, 1_000) if looked else 0)


@pytest.mark.parametrize(
    ("looked_until_ms", "level_ms", "wait_ms", "looks"),
    [
        (T0, 0, 300, 1),
        (T0 + 1, 0, 1, 0),
        (T0 + 1, 7, 7, 0),
        (T0 + 40, 7, 40, 0),
        (T0 + 999, 0, 999, 0),
        (T0 + 7_000, 0, 1_000, 0),
        (T0 - 5, 0, 300, 1),
    ],
)
def test_the_window_is_not_looked_at_before_it_may_have_room(looked_until_ms, level_ms, wait_ms, looks):
    account = account_of(level_ms=level_ms, fits_at_ms=T0 + 300)
    account.looked_until_ms = looked_until_ms
    assert account.wait_ms(0, T0, alone=True) == wait_ms
    assert len(account.window.heard) == looks


@pytest.mark.parametrize(
    ("rate", "limit", "ceiling", "byte_rate"),
    [
        (98_999.9, 100_000.0, 100_000.0, 100_000.0),
        (98_999.89, 100_000.0, 100_000.0, 98_999.89),
        (99_000.0, 100_000.0, 100_000.0, 100_000.0),
        (120_000.0, 100_000.0, 100_000.0, 100_000.0),
        (50_000.0, 100_000.0, 100_000.0, 50_000.0),
        (50_000.0, None, inf, 50_000.0),
        (50_000.0, None, 40_000.0, 40_000.0),
        (inf, None, inf, inf),
    ],
)
def test_the_window_holds_all_of_a_limit_that_nobody_else_has_a_part_of(rate, limit, ceiling, byte_rate):
    account = account_of(rate=rate, limit=limit, ceiling=ceiling)
    assert account.byte_rate == byte_rate
    assert account.rate == 70_000.0
    account.lumps.told["are_for"] = True
    assert account.rate == (70_000.0 if limit is None else byte_rate)
    assert account.lumps.heard == ([] if limit is None else [("are_for", byte_rate, 5_000.0)] * 2)


@pytest.mark.parametrize(
    ("asking", "batch", "nbytes"),
    [(0, 5_000.0, 5_000.0), (1, 5_000.0, 10_000.0), (2, 5_000.0, 15_000.0), (0, 800_001.0, 800_000.0)],
)
def test_all_that_may_be_under_way_must_fit(asking, batch, nbytes):
    account = account_of(batch=batch, fits_at_ms=T0 + 9)
    assert account._fits_at_ms(asking, T0) == T0 + 9
    assert account.window.heard == [("fits_at_ms", nbytes, 80_000.0, T0)]
    free = account_of(limit=None, rate=ENDLESS, ceiling=inf, fits_at_ms=T0 + 9)
    assert free._fits_at_ms(asking, T0) == T0
    assert free.window.heard == []


@pytest.mark.parametrize(
    ("nbytes", "batch"), [(1, 4_750), (2_500, 4_750), (4_749, 4_750), (4_751, 4_751), (6_000, 6_000), (0, 5_000)]
)
def test_a_batch_that_comes_says_what_the_next_one_will_be(nbytes, batch):
    account = account_of()
    account.received(nbytes, T0 - 20, T0)
    account.received(0, T0, T0 + 1)
    assert (account.pace.batch, account.received_bytes) == (batch, nbytes)
    assert account.window.heard == [("answered", nbytes, T0 - 20, T0), ("answered", 0, T0, T0 + 1)]
    assert account.lumps.heard == [("took", nbytes, 80_000.0, batch, T0), ("took", 0, 80_000.0, batch, T0 + 1)]
    assert account.pace.share.heard == [("on_free", T0), ("on_free", T0 + 1)]


@pytest.mark.parametrize(
    ("throttle_ms", "batch", "too_large"),
    [
        (49, 5_000.0, 0),
        (51, 5_100.0, 0),
        (10_000, 1_000_000.0, 0),
        (10_001, 1_000_000.0, 1_000_100),
        (20_000, 1_000_000.0, 2_000_000),
    ],
)
def test_a_refusal_tells_how_large_the_answer_was(throttle_ms, batch, too_large):
    account = account_of()
    account.on_throttle(throttle_ms, T0)
    assert (account.pace.batch, account.too_large) == (pytest.approx(batch), too_large)
    assert account.pace.heard == [("on_throttle", throttle_ms, T0)]
    assert account.window.heard == [("answered", 0, T0 - 600, T0)]
    free = account_of(limit=None, ceiling=inf)
    free.on_throttle(throttle_ms, T0)
    assert (free.pace.batch, free.too_large) == (5_000.0, 0)
    assert free.pace.heard == [("on_throttle", throttle_ms, T0)]
    assert free.window.heard == [("answered", 0, T0 - 600, T0)]


def test_a_refusal_tells_of_parts_of_a_byte():
    account = account_of(limit=1_234.5)
    account.on_throttle(5_001, T0)
    assert account.pace.batch == 1_234.5 * 5_001 / 1_000


# All of them ------------------------------------------------------------------------------------------------------


def test_before_anything_is_heard_of_the_limit_is_what_is_known():
    assert SharePacer(5.0).states(T0) == {ANY_BROKER: ShareState(5.0, 0, 0, 0)}
    assert SharePacer(None).states(T0) == {-1: ShareState(inf, 0, 0, 0)}
    assert (SharePacer(5.0).too_large, SharePacer(5.0).wait_ms(T0)) == (0, 0)


def test_what_is_known_of_each_broker():
    pacer = SharePacer(100_000.0)
    pacer._accounts = {1: account_of(rate=7.0), 2: account_of(throttled_until_ms=T0 + 30)}
    pacer._accounts[2].received_bytes, pacer._accounts[2].too_large = 900, 77
    assert pacer.states(T0 + 10) == {1: ShareState(70_000.0, 0, 0, 0), 2: ShareState(70_000.0, 20, 900, 77)}
    assert pacer.too_large == 77
    assert pacer.wait_ms(T0) is None
    pacer._accounts[1].too_large = 78
    assert pacer.too_large == 78


def test_the_broker_that_must_wait_longest_is_waited_for():
    pacer = SharePacer(100_000.0)
    pacer._accounts = {1: account_of(level_ms=5, lumps=True, lumps_ms=60), 2: account_of(level_ms=9)}
    assert pacer.wait_ms(T0) == 9
    del pacer._accounts[2]
    assert pacer.wait_ms(T0) == 60


def test_requests_under_way_are_counted():
    pacer = SharePacer(100_000.0)
    pacer._accounts = {1: account_of(fits_at_ms=T0)}
    asked = pacer._accounts[1].window.heard
    for _ in range(3):
        pacer.wait_ms(T0)
        pacer.asks()
    pacer.answered({}, T0, T0)
    pacer.wait_ms(T0)
    assert [told[1] for told in asked if told[0] == "fits_at_ms"] == [5_000.0, 10_000.0, 15_000.0, 15_000.0]


def test_what_came_is_divided_among_the_brokers_that_have_something_in_their_windows():
    pacer = SharePacer(100_000.0)
    pacer._accounts = {number: account_of() for number in (1, 2, 3)}
    for number, total in ((1, 500.0), (2, 0.5), (3, 0.0)):
        pacer._accounts[number].window.told["total"] = total
        pacer._accounts[number].looked_until_ms = T0 + 900
    pacer.asks()
    pacer.answered({1: 600, 3: 300}, T0 - 20, T0)
    pacer.answered({1: 100}, T0 - 20, T0 + 1)
    assert [account.paid for account in pacer._accounts.values()] == [500.0, 500.0, 0.0]
    assert [account.received_bytes for account in pacer._accounts.values()] == [700, 0, 300]
    assert [account.looked_until_ms for account in pacer._accounts.values()] == [T0 + 1] * 3
    assert pacer._accounts[1].window.heard[0] == ("answered", 600, T0 - 20, T0)


def test_an_account_is_opened_with_the_limit_and_the_window_that_are_known():
    pacer = SharePacer(5_000.0, samples=7, window_ms=500)
    pacer.on_throttle(1, 0, T0)
    pacer.on_throttle(1, -1, T0)
    assert pacer._accounts == {}
    pacer.on_throttle(1, 1, T0)
    pacer.on_throttle(2, 40, T0)
    accounts = pacer._accounts
    assert {number: account.pace.throttled_until_ms for number, account in accounts.items()} == {1: T0 + 1, 2: T0 + 40}
    assert {(each.window.samples, each.window.window_ms, each.pace.share.limit) for each in accounts.values()} == {
        (7, 500, 5_000.0)
    }
    usual = SharePacer(5_000.0)._account(1, T0).window
    assert (usual.samples, usual.window_ms) == (11, 1_000)


def test_a_throttle_is_the_known_broker_s_or_anybody_s():
    pacer = SharePacer(5_000.0)
    for broker in (ANY_BROKER, 3):
        pacer._account(broker, T0)
    pacer.on_throttle(3, 7, T0)
    pacer.on_throttle(4, 9, T0)
    assert {number: each.pace.throttled_until_ms - T0 for number, each in pacer._accounts.items()} == {-1: 9, 3: 7}


def test_another_limit_is_looked_at_at_once():
    pacer = SharePacer(5_000.0)
    account = pacer._accounts[1] = account_of()
    account.looked_until_ms = account.too_large = T0
    pacer.set_limit(7_000.0)
    assert (account.looked_until_ms, account.too_large) == (0, 0)
    assert account.pace.share.heard == [("set_limit", 7_000.0)]
    assert pacer._account(2, T0).pace.share.limit == 7_000.0
    assert pacer._account(2, T0) is pacer._accounts[2]


# What records take on the wire ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("records", "payload", "fetch_bytes", "batches"),
    [
        (1, 0, 8_192, 1),
        (1, 9_000, 8_192, 1),
        (2, 9_000, 8_192, 1),
        (2, 0, 8_192, 2),
        (15, 15_000, 8_192, 1),
        (5, 500, 8_192, 5),
        (45, 4_500, 8_192, 45),
        (44, 4_400, 8_192, 44),
        (40, 4_000, 8_192, 5),
        (70, 7_000, 8_192, 5),
        (60, 6_000, 8_192, 24),
        (100, 200, 8_192, 100),
        (200, 1_000, 8_192, 78),
        (8, 2_000, 4_096, 6),
        (3, 3_000, 4_096, 3),
        (3, 900, 4_096, 1),
    ],
)
def test_records_are_in_as_many_batches_as_may_have_filled_the_answer(records, payload, fetch_bytes, batches):
    assert wire_bytes(records, payload, fetch_bytes) - payload - 12 * records - 120 == 61 * batches


def test_no_records_take_nothing():
    assert wire_bytes(0, 0, 8_192) == wire_bytes(0, 500, 8_192) == 0


def test_as_many_batches_as_a_plain_search_finds():
    """A batch may be four times as large as those in the answer for which it had no room."""

    def searched(records, payload, fetch_bytes):
        bare = payload + 12 * records
        most = max(min(records, (fetch_bytes - bare) // 61), 1)
        full = [bare + 61 * count + 4 * (bare + 61 * count) / count > fetch_bytes for count in range(1, most + 1)]
        if full[-1] or not full[0]:
            return most
        return full.index(False)

    for records in (1, 2, 3, 5, 8, 13, 21, 34, 55, 89):
        for payload in range(records, 9_000, 97):
            found = wire_bytes(records, payload, 8_192) - payload - 12 * records - 120
            assert found == 61 * searched(records, payload, 8_192), (records, payload)
