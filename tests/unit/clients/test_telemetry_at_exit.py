"""What a client tells its telemetry while the interpreter ends: a destructor that flushes serves events, too."""

import sys

import pytest

from kclient_quota.clients.telemetry import reporter
from kclient_quota.clients.telemetry.reporter import ClientTelemetry


def test_statistics_need_no_module_that_is_not_there_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each event was a traceback in the log."""
    told = ClientTelemetry("producer", {"bootstrap.servers": "localhost:1"}, dict)
    with monkeypatch.context() as ending:
        ending.delitem(sys.modules, "json")
        ending.setattr(sys, "meta_path", None)
        told.on_statistics("{}")


class Closing:
    """One of several clients at the end of a process; so many of them end while one is waited for."""

    def __init__(self, all_of_them: list["Closing"], ends_at_once: int, *, is_known: bool = True) -> None:
        self.all_of_them, self.ends_at_once, self.is_known = all_of_them, ends_at_once, is_known
        self.is_running, self.is_abandoned, self.closed = True, False, 0

    def abandon(self) -> None:
        self.is_abandoned = True

    @property
    def is_awaited(self) -> bool:
        return self.is_running and self.is_known

    def close(self) -> None:
        self.closed += 1
        if not self.is_known:
            return
        for each in [each for each in self.all_of_them if each.is_running][: self.ends_at_once]:
            each.is_running = False


@pytest.mark.parametrize(("ends_at_once", "waits"), [(0, 1), (1, 40), (8, 5), (40, 1)])
def test_many_clients_are_waited_for_as_long_as_some_of_them_end(
    monkeypatch: pytest.MonkeyPatch, ends_at_once: int, waits: int
) -> None:
    clients: list[Closing] = []
    clients += [Closing(clients, ends_at_once) for _ in range(40)]
    monkeypatch.setattr(reporter, "_running", clients)
    reporter._say_good_bye()
    assert all(each.is_abandoned for each in clients)
    assert sum(each.closed for each in clients) == waits


def test_one_that_no_broker_has_answered_yet_does_not_end_the_wait_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has nothing to push, so its `close()` waits for nothing; what others had to say was lost with it."""
    clients: list[Closing] = []
    clients += [Closing(clients, 1, is_known=False), *(Closing(clients, 8) for _ in range(16))]
    monkeypatch.setattr(reporter, "_running", clients)
    reporter._say_good_bye()
    assert not any(each.is_awaited for each in clients)


def test_a_forked_child_leaves_the_connections_of_its_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their threads are not in it, their sockets are: to shut one down shuts down the parent's."""
    clients: list[Closing] = []
    clients.append(Closing(clients, 1))
    clients[0].is_running = False
    monkeypatch.setattr(reporter, "_running", clients)
    reporter._say_good_bye()
    assert (clients[0].is_abandoned, clients[0].closed) == (False, 0)
