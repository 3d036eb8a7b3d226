"""Ctrl-C that arrives in a poll whose own callbacks are called all the time; a process of its own gets the signals."""

import random
import signal
import subprocess
import sys
import threading
import time

import pytest

from kclient_quota.broker import EmbeddedBroker

ROUNDS = 20
POLLS = """
import signal
import sys
from kclient_quota import Consumer, Producer

signal.signal(signal.SIGINT, signal.default_int_handler)  # a test that runs in the background inherits it ignored
seen = []
conf = {"bootstrap.servers": sys.argv[1], "client.id": "app", "stats_cb": seen.append, "statistics.interval.ms": 50}
if sys.argv[3] == "producer":
    client = Producer(conf)
else:
    client = Consumer({**conf, "group.id": "app"})
    client.subscribe(["orders"])
for _ in range(int(sys.argv[2])):
    try:
        print("polls", flush=True)
        while True:
            client.consume(10, 600) if sys.argv[3] == "consume" else client.poll(600)
    except KeyboardInterrupt:
        print("interrupted", len(seen), flush=True)
"""


@pytest.mark.parametrize("client", ["producer", "poll", "consume"])
def test_a_client_with_a_busy_stats_cb_hears_every_interrupt_at_once(client: str) -> None:
    chance = random.Random(1)
    with EmbeddedBroker(topics={"orders": 1}) as broker:
        command = [sys.executable, "-c", POLLS, broker.bootstrap_servers, str(ROUNDS), client]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            # Whatever happens it ends, and with it the wait for what it says.
            limit = threading.Timer(150, process.kill)
            limit.start()
            try:
                took = [_interrupt(process, chance.uniform(0.01, 0.2)) for _ in range(ROUNDS)]
            finally:
                limit.cancel()
                process.kill()
                limit.join()
    assert max(took) < 60, "of the 600 s that a poll may take"


def _interrupt(process: "subprocess.Popen[str]", after_s: float) -> float:
    """After how many seconds it has heard."""
    assert process.stdout is not None
    assert process.stdout.readline() == "polls\n"
    time.sleep(after_s)
    begin = time.monotonic()
    process.send_signal(signal.SIGINT)
    assert process.stdout.readline().startswith("interrupted")
    return time.monotonic() - begin
