"""Ctrl-C that arrives in a poll whose own callbacks are called all the time; a process of its own gets the signals."""

import random
import signal
import subprocess
import sys
import threading
import time

from kclient_quota.broker import EmbeddedBroker

ROUNDS = 20
POLLS = """
import signal
import sys
from kclient_quota import Producer

signal.signal(signal.SIGINT, signal.default_int_handler)  # a test that runs in the background inherits it ignored
seen = []
conf = {"bootstrap.servers": sys.argv[1], "client.id": "app", "stats_cb": seen.append, "statistics.interval.ms": 50}
producer = Producer(conf)
for _ in range(int(sys.argv[2])):
    try:
        print("polls", flush=True)
        while True:
            producer.poll(60)
    except KeyboardInterrupt:
        print("interrupted", len(seen), flush=True)
"""


def test_a_producer_with_a_busy_stats_cb_hears_every_interrupt_at_once() -> None:
    chance = random.Random(1)
    with EmbeddedBroker() as broker:
        command = [sys.executable, "-c", POLLS, broker.bootstrap_servers, str(ROUNDS)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            # Whatever happens it ends, and with it the wait for what it says.
            limit = threading.Timer(60, process.kill)
            limit.start()
            try:
                took = [_interrupt(process, chance.uniform(0.01, 0.2)) for _ in range(ROUNDS)]
            finally:
                limit.cancel()
                process.kill()
                limit.join()
    assert max(took) < 10


def _interrupt(process: "subprocess.Popen[str]", after_s: float) -> float:
    """After how many seconds it has heard."""
    assert process.stdout is not None
    assert process.stdout.readline() == "polls\n"
    time.sleep(after_s)
    begin = time.monotonic()
    process.send_signal(signal.SIGINT)
    assert process.stdout.readline().startswith("interrupted")
    return time.monotonic() - begin
