"""What a client tells its telemetry while the interpreter ends: a destructor that flushes serves events, too."""

import sys

import pytest

from kclient_quota.clients.telemetry.reporter import ClientTelemetry


def test_statistics_need_no_module_that_is_not_there_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each event was a traceback in the log."""
    told = ClientTelemetry("producer", {"bootstrap.servers": "localhost:1"}, dict)
    with monkeypatch.context() as ending:
        ending.delitem(sys.modules, "json")
        ending.setattr(sys, "meta_path", None)
        told.on_statistics("{}")
