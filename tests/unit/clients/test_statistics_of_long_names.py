"""librdkafka cuts a client's name after 127 bytes; where that is within a character, to tell statistics is a crash."""

import pytest

from kclient_quota.clients.librdkafka.statistics_schedule import schedule, told_ms
from kclient_quota.clock import SYSTEM_CLOCK


@pytest.mark.parametrize("client_id", ["é" * 64, "😀" * 40, "注" * 50])
def test_where_the_cut_name_is_no_text_nothing_is_told(client_id: str, caplog: pytest.LogCaptureFixture) -> None:
    conf = {"client.id": client_id, "statistics.interval.ms": 100, "stats_cb": print}
    assert schedule(conf, 1000, SYSTEM_CLOCK) == (0, None)
    assert "client.id" in caplog.text
    assert told_ms(conf, 250) == 0


@pytest.mark.parametrize("client_id", ["é" * 63, "a" + "é" * 100, "z" * 10_000, "", "\udc80" * 200])
def test_other_long_names_are_told_of(client_id: str) -> None:
    assert schedule({"client.id": client_id}, 1000, SYSTEM_CLOCK) == (1000, None)
    assert told_ms({"client.id": client_id}, 250) == 250
