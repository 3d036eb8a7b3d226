"""A logging handler that sends what it is given to Kafka, by a producer of ours: our own lines are among it."""

import subprocess
import sys

import pytest

SCRIPT = """
import faulthandler, logging, sys
from kclient_quota import Producer
from kclient_quota.testing.kafka_broker import KafkaBroker

faulthandler.dump_traceback_later(100, exit=True)
own, works = sys.argv[1] == "own", sys.argv[2]
with KafkaBroker(topics={"orders": 1, "logs": 1}) as broker:
    conf = {"bootstrap.servers": broker.bootstrap_servers, "client.id": "shop"}
    producer = Producer(conf)
    logs = Producer(conf) if own else producer
    lines, failed = [], []

    class ToKafka(logging.Handler):
        def emit(self, record):
            lines.append(record.getMessage())
            logs.produce("logs", self.format(record).encode())
            logs.poll(0) if works == "polls" else logs.flush(0.2)

    logging.getLogger("kclient_quota").addHandler(ToKafka())
    logging.getLogger("kclient_quota").setLevel(logging.INFO)
    for number in range(500):
        producer.produce("orders", b"%d" % number + b"x" * 1000, on_delivery=lambda error, _: failed.append(error))
        producer.poll(0)
        if number == 100:
            broker.set_quota(client_id="shop", producer_byte_rate=40_000)
    while len(producer):  # as throttles are told of within a poll
        producer.poll(0)
    for each in (producer, logs):
        assert each.flush(60) == 0
    assert failed == [None] * 500
    values = [record.value for record in broker.records("orders")]
    assert [int(value.rstrip(b"x")) for value in values] == list(range(500))
    assert lines and len(broker.records("logs")) == len(lines)
    logs.close()
    producer.close()
"""


@pytest.mark.parametrize("works", ["polls", "flushes"])
@pytest.mark.parametrize("whose", ["own", "the-same"])
def test_nothing_aborts_waits_for_itself_or_is_lost(whose: str, works: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, whose, works], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr[-3_000:]
