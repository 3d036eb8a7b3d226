"""What a consumer's callback asks the cluster, in a process of its own: confluent_kafka aborts it if it goes wrong."""

import subprocess
import sys

import pytest

from kclient_quota.broker import EmbeddedBroker

SCENE = """
import sys, time
from kclient_quota import Consumer

heard = []

def ask(consumer, partitions):
    heard.append(sorted(consumer.list_topics("orders", timeout=30).topics["orders"].partitions))
    time.sleep(1.5)  # there are statistics of ours by then, for which librdkafka calls back, too

consumer = Consumer({"bootstrap.servers": sys.argv[1], "group.id": "g", "client.id": "limited", "log_level": 0})
consumer.subscribe(["orders"], **{sys.argv[2]: ask})
while not consumer.assignment():
    consumer.poll(0.1)
if sys.argv[2] == "on_revoke":
    consumer.unsubscribe()
for _ in range(10):
    consumer.consume(5, 0.1)
print(heard)
consumer.close()
print("closed")
"""


@pytest.mark.parametrize("limit", [100_000, None], ids=["limited", "free"])
@pytest.mark.parametrize("callback", ["on_assign", "on_revoke"])
def test_a_consumers_callback_lists_topics(callback: str, limit: int | None) -> None:
    with EmbeddedBroker(topics={"orders": 1}) as broker:
        if limit:
            broker.set_quota(client_id="limited", consumer_byte_rate=limit)
        given = [sys.executable, "-c", SCENE, broker.bootstrap_servers, callback]
        done = subprocess.run(given, capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout == "[[0]]\nclosed\n", done.stderr
