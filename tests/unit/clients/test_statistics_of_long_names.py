"""Names with which to tell statistics ends the process: cut within a character after 127 bytes, or of 20 kB."""

import pytest

from kclient_quota.clients.librdkafka.statistics_schedule import over, schedule, told_ms
from kclient_quota.clock import SYSTEM_CLOCK


@pytest.mark.parametrize("client_id", ["é" * 64, "😀" * 40, "注" * 50, "z" * 20_400])
def test_where_that_would_end_the_process_nothing_is_told(client_id: str, caplog: pytest.LogCaptureFixture) -> None:
    conf = {"client.id": client_id, "statistics.interval.ms": 100, "stats_cb": print}
    assert schedule(conf, 1000, SYSTEM_CLOCK) == (0, None)
    assert "client.id" in caplog.text
    assert told_ms(conf, 250) == 0
    caplog.clear()
    assert over(conf, SYSTEM_CLOCK, wanted=False)[0] == {"statistics.interval.ms": 0}
    assert "client.id" in caplog.text


@pytest.mark.parametrize("client_id", ["é" * 63, "a" + "é" * 100, "z" * 10_000, "", "\udc80" * 200])
def test_other_long_names_are_told_of(client_id: str) -> None:
    assert schedule({"client.id": client_id}, 1000, SYSTEM_CLOCK) == (1000, None)
    assert told_ms({"client.id": client_id}, 250) == 250
    assert over({"client.id": client_id, "statistics.interval.ms": 100}, SYSTEM_CLOCK, wanted=False)[0] == {}


def test_who_wants_no_statistics_is_not_warned(caplog: pytest.LogCaptureFixture) -> None:
    assert over({"client.id": "é" * 64}, SYSTEM_CLOCK, wanted=False)[0] == {}
    assert not caplog.text
