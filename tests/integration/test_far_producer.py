"""A producer far from its broker, under a quota: librdkafka's thread waits for answers, and does not look for them."""

import json
import time
from itertools import pairwise
from statistics import median

from kclient_quota import Producer
from kclient_quota.broker import EmbeddedBroker
from kclient_quota.testing.proxies import Proxies

WAY_MS = 40
SECONDS = 4.0
MOST_LOOKS = 1_000
"""Of librdkafka's thread in half a second, at what there is to do: it needs some twenty, and took 50,000 and more.

Of most half seconds: what is handed over together takes longer than `linger.ms` where something else has the processor,
and what then lingers behind the first of it is looked at until that is answered. Such an answer takes 80 ms.
"""


def test_what_waits_behind_answers_costs_no_processor():
    looks: list[int] = []
    delivered: list[object] = []

    def told(text: str) -> None:
        looks.append(max(each["wakeups"] for each in json.loads(text)["brokers"].values()))

    with Proxies(1) as proxies, EmbeddedBroker(topics={"far": 1}) as cluster:
        proxies.stand_before(cluster)
        proxies.each(lambda proxy: proxy.delay(to_broker_ms=WAY_MS, to_client_ms=WAY_MS))
        cluster.set_quota(client_id="far", producer_byte_rate=500_000)
        conf = {"bootstrap.servers": proxies.bootstrap_servers, "client.id": "far", "enable.metrics.push": False}
        with Producer({**conf, "stats_cb": told, "statistics.interval.ms": 500}) as producer:
            end, number = time.monotonic() + SECONDS, 0
            while time.monotonic() < end:
                producer.produce("far", b"x" * 1_000, str(number), on_delivery=lambda error, _: delivered.append(error))
                number += 1
                producer.poll(0.002)
            assert producer.flush(30) == 0
    assert delivered == [None] * number
    assert median(after - before for before, after in pairwise(looks)) < MOST_LOOKS
