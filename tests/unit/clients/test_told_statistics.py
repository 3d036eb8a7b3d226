"""Statistics of two clients, told as those of one."""

import json
from typing import Any

from kclient_quota.clients.consumer.receiving.told_statistics import ToldAsOne, as_of_one, end_key


def topics(**partition: Any) -> dict[str, Any]:
    return {"orders": {"topic": "orders", "partitions": {"0": partition}}}


def test_ends_are_the_fetchers_and_what_is_stored_is_the_members() -> None:
    member = {
        "name": "app#consumer-1",
        "rxmsgs": 10,
        "brokers": {"GroupCoordinator": {"rx": 1}, "a": {"rx": 2}, "b": {"rx": 3}},
        "topics": topics(hi_offset=20, ls_offset=20, app_offset=10, stored_offset=30, committed_offset=25),
        "cgrp": {"state": "up"},
    }
    fetcher = {
        "name": "app#consumer-2",
        "rxmsgs": 5,
        "rx": 7,
        "brokers": {"GroupCoordinator": {"rx": 100}, "a": {"rx": 200}},
        "topics": topics(hi_offset=101, ls_offset=100, app_offset=33, stored_offset=-1001, consumer_lag=-1),
    }
    told = as_of_one(member, fetcher, "ls_offset")
    assert (told["name"], told["cgrp"], told["rxmsgs"], told["rx"]) == ("app#consumer-1", {"state": "up"}, 15, 7)
    assert told["brokers"] == {"GroupCoordinator": {"rx": 1}, "a": {"rx": 200}, "b": {"rx": 3}}
    assert told["topics"]["orders"]["topic"] == "orders"
    assert told["topics"]["orders"]["partitions"]["0"] == {
        "hi_offset": 101,
        "ls_offset": 100,
        "app_offset": 33,
        "stored_offset": 30,
        "committed_offset": 25,
        "consumer_lag": 70,
        "consumer_lag_stored": 70,
    }


def test_where_nothing_is_known_nothing_is_told() -> None:
    assert as_of_one({"name": "a"}, {}, "ls_offset")["topics"] == {}
    told = as_of_one({"topics": topics()}, {"topics": topics(ls_offset=-1001)}, "ls_offset")
    partition = told["topics"]["orders"]["partitions"]
    assert (partition["0"]["consumer_lag"], partition["0"]["consumer_lag_stored"]) == (-1, -1)
    known = {"stored_offset": 9, "committed_offset": 12}
    for end, lags in ((12, (0, 3)), (5, (0, 0))):
        told = as_of_one({"topics": topics(**known)}, {"topics": topics(ls_offset=end)}, "ls_offset")
        partition = told["topics"]["orders"]["partitions"]
        assert (partition["0"]["consumer_lag"], partition["0"]["consumer_lag_stored"]) == lags


def test_who_reads_what_is_not_committed_may_come_further() -> None:
    ends = {"hi_offset": 12, "ls_offset": 10}
    lags = []
    for conf in ({}, {"isolation.level": "read_uncommitted"}, {"isolation.level": "read_committed"}):
        told = as_of_one({"topics": topics(stored_offset=9)}, {"topics": topics(**ends)}, end_key(conf))
        lags.append(told["topics"]["orders"]["partitions"]["0"]["consumer_lag"])
    assert lags == [1, 3, 1]


def test_the_application_hears_of_one_client_as_it_was_told_and_of_two_as_of_one() -> None:
    heard: list[str] = []
    told = ToldAsOne({})
    told.tell(heard.append, '{"rx":  1}')
    told.fetcher = {"rx": 2}
    told.tell(heard.append, '{"rx":  1}')
    assert heard[0] == '{"rx":  1}'
    assert json.loads(heard[1])["rx"] == 3
