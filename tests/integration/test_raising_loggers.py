"""A `logger` whose handler raises while messages come, or closes the consumer: none is lost, and nothing hangs."""

import subprocess
import sys

import pytest

from kclient_quota.broker import EmbeddedBroker
from tests.consuming import consumer_of
from tests.filling import fill

MADE = """
import logging, sys, time, kclient_quota

class Theirs(logging.Handler):
    def emit(self, record):
        emit(record)

logger = logging.getLogger("theirs")
logger.addHandler(Theirs())
logger.propagate = False
logger.setLevel(logging.DEBUG)
got, raised, lines = [], [], []
conf = {"bootstrap.servers": sys.argv[1], "client.id": "app", "group.id": "g", "auto.offset.reset": "earliest"}
consumer = kclient_quota.Consumer({**conf, "logger": logger, "debug": "fetch,cgrp", "fetch.wait.max.ms": 20})
consumer.subscribe(["orders"])
"""
RAISES = """
def emit(record):
    raise ValueError("theirs")
"""
READS = """
until = time.monotonic() + 60
while len(got) < int(sys.argv[2]) and time.monotonic() < until:
    try:
        got += [message.offset() for message in consumer.consume(20, 0.5)]
    except ValueError:
        raised.append(len(got))
try:
    consumer.close()
except ValueError:
    pass
print(got == list(range(int(sys.argv[2]))), bool(raised))
"""
CLOSES = """
def emit(record):
    lines.append(len(got))
    if sum(map(bool, lines)) > 2:  # in the midst of a batch
        consumer.close()
"""
READS_ON = """
try:
    while True:
        got += consumer.consume(1_000 if got else 20, 0.5)
except RuntimeError as error:
    print(error)
"""
COUNT = 400


@pytest.mark.timeout(180)
@pytest.mark.parametrize("rate", [None, 100_000])
@pytest.mark.parametrize(
    ("scene", "told"),
    [(RAISES + MADE + READS, "True True\n"), (CLOSES + MADE + READS_ON, "Consumer closed\n")],
    ids=["raises", "closes"],
)
def test_all_is_read_and_the_consumer_is_closed(
    broker: EmbeddedBroker, rate: int | None, scene: str, told: str
) -> None:
    if rate is not None:
        broker.set_quota(client_id="app", consumer_byte_rate=rate)
    fill(broker, "orders", COUNT, 10, size=500)
    given = [sys.executable, "-c", scene, broker.bootstrap_servers, str(COUNT)]
    done = subprocess.run(given, capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout == told, done.stderr


def test_none_is_no_logger(broker: EmbeddedBroker) -> None:
    consumer = consumer_of(broker, "orders", "app", logger=None, debug="cgrp")
    assert consumer.poll(1) is None
    consumer.close()
