"""A producer that is made and not used hears librdkafka's statistics: nobody polls it, and it would keep them all."""

import threading

import pytest

from kclient_quota import Producer
from kclient_quota.broker import EmbeddedBroker
from kclient_quota.clients.producer import settings
from kclient_quota.clients.producer.sender.hearing import Hearing


@pytest.mark.parametrize("limit", [{}, {"producer_byte_rate": 20_000}], ids=["asked for", "by hand"])
def test_a_producer_under_a_quota_keeps_none_before_its_first_message(
    broker: EmbeddedBroker, limit: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.set_quota(client_id="app", producer_byte_rate=20_000)
    heard = threading.Semaphore(0)
    monkeypatch.setattr(settings, "STATISTICS_MS", 50)
    monkeypatch.setattr(Hearing, "on_statistics", lambda _self, _text: heard.release())
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "client.id": "app", **limit})
    for _ in range(20):
        assert heard.acquire(timeout=30)
    producer.close()
