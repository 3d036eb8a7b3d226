"""A producer under a quota of bytes and one of requests that small batches would use up."""

import time

from kclient_quota import Producer
from kclient_quota.broker import EmbeddedBroker

RATE = 50_000
PERCENTAGE = 0.3
SECONDS = 25.0
WARM_S = 10.0


def test_the_bytes_are_used_though_a_request_for_each_message_would_be_too_many() -> None:
    """Its throttles were taken for those of others who send bytes: a fifth of them was used, in requests of two."""
    with EmbeddedBroker(topics={"t": 3}) as cluster:
        cluster.set_quota(client_id="app", producer_byte_rate=RATE, request_percentage=PERCENTAGE)
        delivered = 0

        def report(error: object, _message: object) -> None:
            nonlocal delivered
            delivered += error is None

        with Producer({"bootstrap.servers": cluster.bootstrap_servers, "client.id": "app"}) as producer:
            begin, warm = time.monotonic(), None
            while (now_s := time.monotonic() - begin) < SECONDS:
                if warm is None and now_s >= WARM_S:
                    warm = delivered
                producer.produce("t", b"x" * 1_000, on_delivery=report)
                producer.poll(0)
            assert warm is not None
            used = (delivered - warm) * 1_000 / (SECONDS - WARM_S) / RATE
            producer.purge()
        assert used >= 0.7
