"""Connections of an address that has opened too many: not served, and closed later."""

import asyncio
import socket
from contextlib import ExitStack

from kclient_quota.broker import EmbeddedBroker
from tests.bare_requests import API_VERSIONS


def begins_to_read(transport, fd, callback, *args):
    """`_SelectorTransport._add_reader` of Python 3.11.2: reads from a connection that was paused when it was made."""
    if not transport._closing:
        transport._loop._add_reader(fd, callback, *args)


def test_who_is_refused_is_served_by_no_release_of_python(monkeypatch):
    monkeypatch.setattr(asyncio.selector_events._SelectorTransport, "_add_reader", begins_to_read)
    with EmbeddedBroker() as broker, ExitStack() as stack:
        broker.set_quota(ip="127.0.0.1", connection_creation_rate=1)
        address = broker.bootstrap_servers.split(":")
        opened = [stack.enter_context(socket.create_connection(address, timeout=60)) for _ in range(40)]
        for each in opened:
            each.sendall(API_VERSIONS)
        served = [answer(each) for each in opened]
        assert served[:5] == [True] * 5
        assert sum(served) < 20


def answer(connection):
    """Whether there was one."""
    try:
        return bool(connection.recv(1))
    except ConnectionError:
        return False
