"""An `on_commit` that raises while messages come: none is lost, and the consumer can be closed."""

import subprocess
import sys

import pytest

from kclient_quota.broker import EmbeddedBroker

SCENE = """
import sys, threading, time, confluent_kafka, kclient_quota

def fill():
    producer = confluent_kafka.Producer({"bootstrap.servers": sys.argv[1], "linger.ms": 0, "log_level": 0})
    while not stop.wait(0.002):
        producer.produce("orders", b"x")
    producer.flush()

def fail(*_):
    raise ValueError("theirs")

stop, got, raised = threading.Event(), [], []
conf = {"bootstrap.servers": sys.argv[1], "group.id": "g", "auto.offset.reset": "earliest", "log_level": 0}
consumer = kclient_quota.Consumer({**conf, "auto.commit.interval.ms": 100, "on_commit": fail})
consumer.subscribe(["orders"])
threading.Thread(target=fill, daemon=True).start()
until = time.monotonic() + 60
while len(raised) < 5 and time.monotonic() < until:
    try:
        got += [message.offset() for message in consumer.consume(100, 0.5)]
    except ValueError:
        raised.append(len(got))
stop.set()
try:
    consumer.close()
except ValueError:
    pass
print(got == list(range(len(got))), len(raised))
"""


@pytest.mark.timeout(180)
def test_a_consumer_is_closed_whose_on_commit_raises_while_messages_come(broker: EmbeddedBroker) -> None:
    given = [sys.executable, "-c", SCENE, broker.bootstrap_servers]
    done = subprocess.run(given, capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout == "True 5\n", done.stderr
