"""Numbers of a configuration that librdkafka takes are read as it reads them."""

import pytest

from kclient_quota.clients.librdkafka.statistics_schedule import schedule
from kclient_quota.clients.producer import settings
from kclient_quota.clock import SYSTEM_CLOCK
from kclient_quota.config import whole_number

READ = [
    *((7, 7), (7.0, 7), (7.9, 7), ("7.0", 7), ("7e3", 7), ("7 # ms", 7), ("7_000", 7), (" \t7", 7), ("+7", 7)),
    *(("-7", -7), ("0", 0), ("-0", 0), ("0x1F", 31), ("0X1f", 31), ("017", 15), ("08", 0), ("0x", 0)),
]


@pytest.mark.parametrize(("given", "number"), READ, ids=[repr(given) for given, _ in READ])
def test_a_number_is_read_as_c_reads_it(given, number):
    assert whole_number({"k": given}, ["k"], 99) == number


@pytest.mark.parametrize("given", [None, "", "x", "-", "\u0667", True, "inf", float("nan"), [7]])
def test_what_is_no_number_leaves_the_default(given):
    assert whole_number({"k": given, "other": 5}, ["k"], 99) == 99
    assert whole_number({"k": given, "other": 5}, ["k", "other"], 99) == 5


@pytest.mark.parametrize("wish", [6e4 + 0.5, "60000.0", "60000 # a minute", "0xEA60", "+60000", " 60000 ", "00165140"])
def test_statistics_come_as_often_as_we_need_them_however_the_users_interval_is_written(wish):
    for stats_cb in ({}, {"stats_cb": print}):
        assert schedule({"statistics.interval.ms": wish, **stats_cb}, 200, SYSTEM_CLOCK)[0] == 200


@pytest.mark.parametrize("wish", ["86400001", 99_999_999, -1, "x", "", None])
def test_an_interval_that_librdkafka_refuses_is_left_to_it(wish):
    assert schedule({"statistics.interval.ms": wish}, 200, SYSTEM_CLOCK)[0] is wish


def test_in_flight_and_retries_in_hexadecimal_decide_about_idempotence():
    assert not settings.allows_idempotence({"max.in.flight": "0x10"})
    assert settings.allows_idempotence({"max.in.flight": "0x5", "retries": "0x1"})
    assert not settings.allows_idempotence({"retries": "0x0"})
    assert settings.in_flight({"max.in.flight": "0x2"}) == 2
