"""What is logged of clients that send nonsense: enough to find them, and no more."""

import struct

import pytest

from kclient_quota.broker.request.complaints import Complaints
from kclient_quota.broker.request.context import ConnectionState
from kclient_quota.broker.request.dispatch import dispatch
from tests.unit.broker.core_cluster import Cluster

NO_HEADER = b"\x00"
UNKNOWN_API = struct.pack(">hhih", 999, 0, 7, -1)
UNKNOWN_VERSION = struct.pack(">hhih", 3, 99, 7, -1) + b"\x00"
NO_BODY = struct.pack(">hhih", 3, 1, 7, -1) + struct.pack(">i", 1 << 30)


def sent(cluster, frame, times, address="192.0.2.7"):
    connection = ConnectionState("SSL", address)
    for _ in range(times):
        outcomes = []
        dispatch(cluster.node, connection, memoryview(frame), len(frame), outcomes.append)
        assert outcomes[0].must_close


@pytest.mark.parametrize(
    "frame", [NO_HEADER, UNKNOWN_API, UNKNOWN_VERSION, NO_BODY], ids=["header", "api", "version", "body"]
)
def test_ten_bad_requests_of_an_address_are_logged_and_that_there_are_more(frame, caplog):
    cluster = Cluster()
    sent(cluster, frame, 1_000)
    assert len(caplog.messages) == 11
    assert all("192.0.2.7" in line for line in caplog.messages)
    assert "is not logged within this minute" in caplog.messages[-1]
    sent(cluster, frame, 1, address="192.0.2.8")
    assert "192.0.2.8" in caplog.messages[-1]


def test_what_is_logged_of_a_client_is_who_it_is_and_nothing_from_within(caplog):
    sent(Cluster(), UNKNOWN_API, 1)
    assert caplog.messages == ["broker 1: API 999 is not to be had for 192.0.2.7 on SSL"]


def test_very_many_addresses_fill_no_log_and_the_next_minute_begins_anew(caplog):
    complaints = Complaints()
    assert sum(complaints.may(1, f"2001:db8::{number:x}", 5) for number in range(10_000)) == 100
    assert not complaints.may(1, "192.0.2.7", 60_004)
    assert [complaints.may(1, "192.0.2.7", 60_005) for _ in range(12)] == [True] * 10 + [False] * 2
    assert len(caplog.messages) == 1
