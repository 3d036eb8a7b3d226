"""A Ctrl-C in the midst of a consumer's close(): it is heard, once, and the next close() finds all in order."""

import json
import signal
import subprocess
import sys

import pytest

from kclient_quota.broker import EmbeddedBroker
from tests.filling import fill

SCRIPT = """
import json, os, random, signal, sys, threading, time
from collections import Counter
import kclient_quota

kind, servers, count, longest_s = json.loads(sys.argv[1])
chance, seen = random.Random(1), Counter()
for number in range(count):
    conf = {"bootstrap.servers": servers, "group.id": f"{kind}-{number}"}
    if kind == "Consumer":
        conf["auto.offset.reset"] = "earliest"
    consumer = getattr(kclient_quota, kind)(conf)
    consumer.subscribe(["t"])
    until = time.monotonic() + 10
    while not consumer.poll(0.2) and kind == "Consumer":
        assert time.monotonic() < until
    at_s = chance.random() * longest_s

    def interrupt():
        end = time.perf_counter() + at_s
        while time.perf_counter() < end:
            pass
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    try:
        thread.start()
        consumer.close()
        thread.join()
        time.sleep(0.01)
        seen["not heard"] += 1
    except KeyboardInterrupt:
        seen["heard"] += 1
    except BaseException as error:
        seen[repr(error)] += 1
    thread.join()
    try:
        consumer.close()
    except BaseException as error:
        seen[repr(error)] += 1
print(json.dumps(seen))
"""


@pytest.mark.parametrize(("kind", "count", "longest_s"), [("Consumer", 50, 0.012), ("ShareConsumer", 12, 0.004)])
def test_every_interrupt_of_a_close_is_heard(kind: str, count: int, longest_s: float) -> None:
    with EmbeddedBroker(topics={"t": 3}) as broker:
        fill(broker, "t", 30, partitions=3)
        arguments = json.dumps([kind, broker.bootstrap_servers, count, longest_s])
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT, arguments],
            capture_output=True,
            text=True,
            timeout=100,
            check=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        )
    assert json.loads(done.stdout) == {"heard": count}, done.stderr
    assert "Exception ignored" not in done.stderr
