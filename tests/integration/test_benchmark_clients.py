"""Every client that the benchmarks compare moves messages, and each is counted the same way."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from functools import partial

import pytest

from benchmarks import java_peer
from benchmarks.cell import measure
from benchmarks.scenes import ProducerScene
from kclient_quota.broker import EmbeddedBroker
from tests.required import require_apache_kafka

pytestmark = pytest.mark.timeout(400)  # a compiler, and processes side by side, on a busy machine

MESSAGES = 120
IN_SOURCE = 320


@pytest.fixture(scope="module")
def broker():
    with EmbeddedBroker(topics={"source": 1}) as running:
        spec = {"bootstrap": running.bootstrap_servers, "topic": "source", "partitions": 1}
        told = measure("filling", {**spec, "batches": 20, "batch_bytes": 16_000}, timeout_s=120)
        assert told["messages"] == IN_SOURCE
        yield running


def of(broker, client, kind, partitions=1):
    name = f"{kind}-{client}-{partitions}"
    broker.create_topic(name, partitions)
    spec = {"client": client, "bootstrap": broker.bootstrap_servers, "topic": name, "client_id": name}
    return {**spec, "class_path": java_peer.compiled()} if client.startswith("java") else spec


def stored(broker, spec, **compare):
    return measure(
        "readback", {"bootstrap": broker.bootstrap_servers, "topic": spec["topic"], **compare}, timeout_s=120
    )


def produces(broker, client, **changes):
    spec = of(broker, client, "produce", changes.get("partitions", 1))
    scene = ProducerScene("", quota=1_000_000, messages=MESSAGES, size=500, wait_s=60, **changes)
    told = measure("producing", {**asdict(scene), **spec}, timeout_s=150)
    assert (told["handed_over"], told["acknowledged"], told["unreported"]) == (MESSAGES, MESSAGES, 0)
    assert 0 <= told["latency_p50_ms"] <= told["latency_p99_ms"] <= told["latency_max_ms"] < 60_000
    found = stored(broker, spec, failed_ids=told["failed_ids"], handed_over=MESSAGES + 1)
    assert (found["in_log"], found["lost"], found["duplicated"]) == (MESSAGES, 1, 0), (
        "one that was never sent is missed"
    )


def consumes(broker, client):
    told = measure("consuming", {**of(broker, client, "consume"), "topic": "source", "seconds": 4}, timeout_s=150)
    assert (told["repeated"], told["skipped"], told["rebalances"]) == (0, 0, 0)
    assert told["messages"] <= IN_SOURCE


def loops(broker, client):
    spec = {**of(broker, client, "loop"), "source": "source", "reader_id": "reader", "seconds": 4}
    told = measure("looping", {**spec, "commit_every": 50, "poll_interval_ms": 60_000}, timeout_s=150)
    assert told["rebalances"] == 0
    found = stored(broker, spec, group=spec["client_id"], source="source")
    assert (found["lost"], found["duplicated"]) == (0, 0)
    assert found["committed"] <= found["in_log"] <= told["handed_over"] <= IN_SOURCE


def side_by_side(broker, work, clients):
    with ThreadPoolExecutor() as pool:
        for done in [pool.submit(work, broker, client) for client in clients]:
            done.result()


@pytest.mark.parametrize("work", [produces, consumes, loops])
def test_python_clients_are_counted_the_same_way(broker, work):
    side_by_side(broker, work, ["plain", "kafka-python", "aiokafka", "ours"])


def test_keyed_compressed_orders_are_counted_the_same_way(broker):
    keyed = partial(produces, partitions=3, kind="orders", compression="zstd")
    side_by_side(broker, keyed, ["plain", "plain-tuned", "kafka-python", "ours"])


def test_java_tuned_by_hand_sends_the_same_orders(broker):
    require_apache_kafka()
    produces(broker, "java-tuned", partitions=3, kind="orders", compression="zstd")


@pytest.mark.parametrize("work", [produces, consumes, loops])
def test_java_is_counted_the_same_way(broker, work):
    require_apache_kafka()
    work(broker, "java")
