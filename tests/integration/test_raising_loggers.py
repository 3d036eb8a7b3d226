"""A `logger` whose handler raises while messages come, or closes the consumer: none is lost, and nothing hangs."""

import subprocess
import sys

import pytest

from kclient_quota.broker import EmbeddedBroker
from tests.consuming import consumer_of
from tests.filling import fill

SCENE = """
import logging, sys, time, kclient_quota

class Failing(logging.Handler):
    def emit(self, record):
        raise ValueError("theirs")

logger = logging.getLogger("theirs")
logger.addHandler(Failing())
logger.propagate = False
logger.setLevel(logging.DEBUG)
got, raised = [], []
conf = {"bootstrap.servers": sys.argv[1], "client.id": "app", "group.id": "g", "auto.offset.reset": "earliest"}
consumer = kclient_quota.Consumer({**conf, "logger": logger, "debug": "fetch,cgrp", "fetch.wait.max.ms": 20})
consumer.subscribe(["orders"])
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
COUNT = 400

CLOSING = """
import logging, sys, kclient_quota

class Closing(logging.Handler):
    def emit(self, record):
        lines.append(len(got))
        if sum(map(bool, lines)) > 2:  # in the midst of a batch
            consumer.close()

logger = logging.getLogger("theirs")
logger.addHandler(Closing())
logger.propagate = False
logger.setLevel(logging.DEBUG)
got, lines = [], []
conf = {"bootstrap.servers": sys.argv[1], "client.id": "app", "group.id": "g", "auto.offset.reset": "earliest"}
consumer = kclient_quota.Consumer({**conf, "logger": logger, "debug": "fetch,cgrp", "fetch.wait.max.ms": 20})
consumer.subscribe(["orders"])
try:
    while True:
        got += consumer.consume(1_000 if got else 20, 0.5)
except RuntimeError as error:
    print(error)
"""


@pytest.mark.timeout(180)
@pytest.mark.parametrize("rate", [None, 100_000])
def test_a_consumer_reads_all_and_is_closed(broker: EmbeddedBroker, rate: int | None) -> None:
    if rate is not None:
        broker.set_quota(client_id="app", consumer_byte_rate=rate)
    fill(broker, "orders", COUNT, 10, size=500)
    given = [sys.executable, "-c", SCENE, broker.bootstrap_servers, str(COUNT)]
    done = subprocess.run(given, capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout == "True True\n", done.stderr


@pytest.mark.timeout(180)
@pytest.mark.parametrize("rate", [None, 100_000])
def test_a_handler_may_close_the_consumer(broker: EmbeddedBroker, rate: int | None) -> None:
    if rate is not None:
        broker.set_quota(client_id="app", consumer_byte_rate=rate)
    fill(broker, "orders", COUNT, 10, size=500)
    given = [sys.executable, "-c", CLOSING, broker.bootstrap_servers]
    done = subprocess.run(given, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "Consumer closed\n", done.stderr


def test_none_is_no_logger(broker: EmbeddedBroker) -> None:
    consumer = consumer_of(broker, "orders", "app", logger=None, debug="cgrp")
    assert consumer.poll(1) is None
    consumer.close()
