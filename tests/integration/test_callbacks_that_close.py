"""A rebalance callback that closes its consumer while messages come: it is closed, and another one reads on."""

import subprocess
import sys

import pytest

from kclient_quota.broker import EmbeddedBroker

SCENE = """
import sys, threading, time, confluent_kafka, kclient_quota

address, door = sys.argv[1:]

def fill():
    producer = confluent_kafka.Producer({"bootstrap.servers": address, "linger.ms": 0})
    while not stop.wait(0.002):
        producer.produce("orders", b"%d" % len(sent))
        sent.append(None)
    producer.flush()

def close(consumer, _):
    consumer.close()
    closed.append(True)

def take():
    found = consumer.consume(1_000, 0.3) if door == "consume" else [consumer.poll(0.3)]
    got.extend(message.value() for message in found if message is not None)

stop, sent, got, closed = threading.Event(), [], [], []
conf = {"bootstrap.servers": address, "group.id": "g", "auto.offset.reset": "earliest", "heartbeat.interval.ms": 100}
consumer = kclient_quota.Consumer({**conf, "client.id": "app"})
consumer.subscribe(["orders"], on_revoke=close)
filling = threading.Thread(target=fill, daemon=True)
filling.start()
while len(got) < 200:
    take()
other = confluent_kafka.Consumer(conf)
other.subscribe(["orders"])
joining = threading.Thread(target=lambda: rest.append(other.poll(30)), daemon=True)
rest = []
joining.start()
try:
    while not closed:
        take()
    take()
except RuntimeError as error:
    print(error)
stop.set()
filling.join()
joining.join()
until = time.monotonic() + 30
while len(got) + len(rest) < len(sent) and time.monotonic() < until:
    rest += [message for message in [other.poll(0.2)] if message is not None]
other.close()
print(got + [message.value() for message in rest] == [b"%d" % number for number in range(len(sent))])
"""


@pytest.mark.timeout(180)
@pytest.mark.parametrize(("door", "rate"), [("consume", None), ("consume", 20_000), ("poll", 20_000)])
def test_it_is_closed_when_its_batch_has_come(broker: EmbeddedBroker, door: str, rate: int | None) -> None:
    if rate is not None:
        broker.set_quota(client_id="app", consumer_byte_rate=rate)
    given = [sys.executable, "-c", SCENE, broker.bootstrap_servers, door]
    done = subprocess.run(given, capture_output=True, text=True, timeout=90, check=False)
    assert done.stdout == "Consumer closed\nTrue\n", done.stderr
