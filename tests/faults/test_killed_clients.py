"""A producer that is killed in mid-throttle: nothing that it reported is missing, nothing twice."""

import subprocess
import sys
import time
from collections import Counter
from typing import Any

import pytest

from kclient_quota.testing.proxies import Proxies
from tests.faults.producing import PARTITIONS, read_all

pytestmark = pytest.mark.timeout(200)
CLIENT = """
import sys
from kclient_quota import Producer
producer = Producer({"bootstrap.servers": sys.argv[1], "client.id": sys.argv[2], "enable.metrics.push": False})
def report(error, message):
    if error is None:
        print(message.value()[:8].decode(), flush=True)
number = 0
while True:
    try:
        producer.produce(sys.argv[2], b"%08d" % number + b"x" * 992, partition=number % 3, on_delivery=report)
        number += 1
    except BufferError:
        producer.poll(0.05)
    producer.poll(0)
"""


@pytest.mark.parametrize("after_s", [1.0, 4.0], ids=["in the burst", "in mid-throttle"])
def test_what_a_killed_producer_has_reported_is_there(behind_proxies: tuple[Any, Proxies], after_s: float) -> None:
    cluster, _ = behind_proxies
    name = f"killed-{after_s:.0f}"
    cluster.create_topic(name, PARTITIONS, replication=3)
    cluster.set_quota(client_id=name, producer_byte_rate=20_000)
    command = [sys.executable, "-c", CLIENT, cluster.bootstrap_servers, name]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as client:
        assert client.stdout is not None
        reported = [client.stdout.readline().strip()]
        time.sleep(after_s)
        client.kill()
        reported += [line.strip() for line in client.stdout if line.endswith("\n")]
    stored = Counter(value.decode() for partition in range(PARTITIONS) for value in read_all(cluster, name, partition))
    assert len(reported) > 10
    assert set(reported) <= set(stored)
    assert set(stored.values()) == {1}
