"""A Ctrl-C that comes while a throttled consumer waits, and so is seen in the callback that tells of a throttle."""

import json
import subprocess
import sys

from kclient_quota.testing.kafka_broker import KafkaBroker
from tests.filling import fill

SCRIPT = """
import faulthandler, json, sys, time
import confluent_kafka
from kclient_quota import Consumer

servers, within = json.loads(sys.argv[1])
faulthandler.dump_traceback_later(60, exit=True)
make, came = confluent_kafka.ThrottleEvent.__init__, []

class Noting(Consumer):
    waits_s = 0

    def _kq_within(self, call, *args):
        self.waits_s = args[-1]
        return super()._kq_within(call, *args)

def interrupted(self, *args):
    # Python looks for signals where its code is run next: librdkafka has waited, and calls this.
    if consumer.waits_s and len(came) < 2:
        came.append(consumer.waits_s)
        raise KeyboardInterrupt
    make(self, *args)

confluent_kafka.ThrottleEvent.__init__ = interrupted
conf = {"client.id": "app", "group.id": within, "auto.offset.reset": "earliest", "quota.limit.source": "learned"}
consumer = Noting({"bootstrap.servers": servers, **conf})
consumer.subscribe(["t"])
got, heard, until = [], 0, time.monotonic() + 60
while heard < 2 or len(got) < 3_000:
    assert time.monotonic() < until, (heard, len(got))
    try:
        got += consumer.consume(50, 0.2) if within == "consume" else filter(None, [consumer.poll(0.2)])
    except KeyboardInterrupt:
        heard += 1
places = [(message.partition(), message.offset()) for message in got]
last = {partition: offset for partition, offset in places}
consumer.close()
twice = len(got) - len(set(places))
print(json.dumps({"heard": heard, "missing": sum(last.values()) + len(last) + twice - len(got), "twice": twice}))
"""


def played(within: str) -> dict[str, int]:
    with KafkaBroker(topics={"t": 3}) as broker:
        fill(broker, "t", 12_000, per_batch=20, partitions=3, size=60)
        broker.set_quota(client_id="app", consumer_byte_rate=30_000)
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT, json.dumps([broker.bootstrap_servers, within])],
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    told: dict[str, int] = json.loads(done.stdout)
    return told


def test_consume_is_ended_and_the_consumer_can_be_closed() -> None:
    """librdkafka lost what it had in hand of a batch; `close()` waited for that for ever, Ctrl-C included."""
    assert played("consume") == {"heard": 2, "missing": 0, "twice": 0}


def test_poll_is_ended_and_the_consumer_can_be_closed() -> None:
    assert played("poll") == {"heard": 2, "missing": 0, "twice": 0}
