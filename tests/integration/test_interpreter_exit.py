"""What is flushed while the interpreter ends, when no thread runs any more but the main one, under a quota."""

import subprocess
import sys

import pytest

from kclient_quota.broker import EmbeddedBroker
from tests.consuming import consumer_of

SCRIPT = """
import atexit, sys

class Sink:
    def __init__(self):
        self.out = sys.stdout  # names of the module are gone by then

    def end(self):
        {end}
        self.out.write(f"{{left}} left")
        self.out.flush()

sink = Sink()
atexit.register(lambda: {first})
from kclient_quota import Producer
sink.producer = Producer({{"bootstrap.servers": {servers!r}, "client.id": "app"}})
Sink.__del__ = lambda self: {last}
for number in range({count}):
    sink.producer.produce("t", b"%04d" % number + b"x" * 996)
"""
FLUSH = "left = self.producer.flush(60)"
ENDS = {
    "flush": FLUSH,
    "poll": "left = sum(self.producer.poll(60) for _ in iter(lambda: len(self.producer), 0)) * 0",
    "close": "left = int(not self.producer.close())",
    "produce": f'[self.producer.produce("t", b"x" * 1000) for _ in range(5)]; {FLUSH}',
}
ENDS["produce a batch"] = f'self.producer.produce_batch("t", [{{"value": b"x" * 1000}}] * 5); {FLUSH}'
COUNT = 15


@pytest.mark.parametrize("when", ["destructor", "exit handler"])
@pytest.mark.parametrize("end", ENDS)
def test_what_is_flushed_at_the_end_is_delivered(broker: EmbeddedBroker, end: str, when: str) -> None:
    broker.create_topic("t", 1)
    broker.set_quota(client_id="app", producer_byte_rate=20_000)
    first, last = ("sink.end()", "None") if when == "exit handler" else ("None", "self.end()")
    script = SCRIPT.format(end=ENDS[end], first=first, last=last, servers=broker.bootstrap_servers, count=COUNT)
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False)
    assert (ended.returncode, ended.stdout) == (0, "0 left"), ended.stderr
    consumer = consumer_of(broker, "t", "reader")
    found = [consumer.poll(60) for _ in range(COUNT)]
    assert [int((message.value() or b"")[:4]) for message in found if message is not None] == list(range(COUNT))
    consumer.close()
