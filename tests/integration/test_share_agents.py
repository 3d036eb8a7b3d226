"""An agent that puts Python subclasses in the place of both share consumers sees each call as often as with plain."""

import json
import subprocess
import sys

import pytest

SCRIPT = """
import collections, json, sys
import confluent_kafka

calls = collections.Counter()

def seen(name):
    class Seen(getattr(confluent_kafka, name)):
        def poll(self, *args, **kwargs):
            calls[name] += 1
            return super().poll(*args, **kwargs)
    return Seen

for name in ("ShareConsumer", "DeserializingShareConsumer"):
    globals()[name] = seen(name)
confluent_kafka.ShareConsumer, confluent_kafka.DeserializingShareConsumer = ShareConsumer, DeserializingShareConsumer

import kclient_quota
from kclient_quota.broker import EmbeddedBroker

with EmbeddedBroker(topics={"orders": 1}) as broker:
    for module in (confluent_kafka, kclient_quota):
        calls.clear()
        conf = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "g", "log_level": 0}
        consumer = getattr(module, sys.argv[1])(conf)
        consumer.subscribe(["orders"])
        consumer.poll(0.2)
        consumer.close()
        print(json.dumps(calls), flush=True)
"""


@pytest.mark.parametrize("kind", ["ShareConsumer", "DeserializingShareConsumer"])
def test_a_poll_is_seen_once(kind):
    done = subprocess.run([sys.executable, "-c", SCRIPT, kind], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr[-2_000:]
    plain, ours = (json.loads(line) for line in done.stdout.splitlines())
    assert plain == ours == {kind: 1}
