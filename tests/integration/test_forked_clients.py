"""A child that was forked from a process with clients makes its own, and ends: gunicorn's workers with --preload."""

import subprocess
import sys
from typing import Any

import pytest

from kclient_quota.broker import EmbeddedBroker

SCRIPT = """
import asyncio, os, signal, sys
import kclient_quota

servers, kind, how = sys.argv[1:]
conf = {"bootstrap.servers": servers, "log_level": 0}

async def sent():
    made = kclient_quota.AIOProducer(conf, batch_size=1)
    await (await made.produce("orders", b"x"))
    return made

def make():
    if kind == "AIOProducer":
        return asyncio.run(sent())
    if kind == "Producer":
        made = kclient_quota.Producer(conf)
        made.produce("orders", b"x")
        assert made.flush(30) == 0
        return made
    made = getattr(kclient_quota, kind)({**conf, "group.id": "g"})
    made.subscribe(["orders"])
    made.poll(0.2)
    return made

client = make()
child = os.fork()
if not child:
    signal.alarm(30)  # an end that never comes
    mine = make()
    if how == "replaced":  # docs/how-to/forks.md
        client = mine
    sys.exit(0)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.fixture
def servers() -> Any:
    with EmbeddedBroker(topics={"orders": 1}) as broker:
        yield broker.bootstrap_servers


@pytest.mark.parametrize("how", ["kept", "replaced"])
@pytest.mark.parametrize("kind", ["Producer", "Consumer", "ShareConsumer", "AIOProducer"])
def test_a_child_ends_that_has_a_client_of_its_own_beside_its_parents(servers: str, kind: str, how: str) -> None:
    """It ended in a segmentation fault or never: librdkafka took down what its parent's threads had on their stacks."""
    command = [sys.executable, "-W", "ignore", "-c", SCRIPT, servers, kind, how]  # 3.12 warns of forks beside threads
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.stdout.strip(), done.stderr) == ("0", "")
