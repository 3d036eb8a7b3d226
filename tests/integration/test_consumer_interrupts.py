"""Signals at random moments of poll() and consume(): every later call works, nothing is lost, nothing comes twice."""

import json
import signal
import subprocess
import sys
from typing import Any

import confluent_kafka
import pytest

from kclient_quota.broker import EmbeddedBroker
from kclient_quota.clients.consumer.receiving.fetching import made_apart

INTERRUPTS = 500
PARTITIONS = 3
EACH = 20_000

SCRIPT = """
import json, random, signal, sys, time
from confluent_kafka import TopicPartition
from kclient_quota.clients.consumer import Consumer

class Stop(Exception):
    pass

def stop(*_):
    raise Stop

servers, limit, how, wanted, each, partitions = json.loads(sys.argv[1])
signal.signal(signal.SIGALRM, stop)
chance = random.Random(1)
conf = {"bootstrap.servers": servers, "group.id": how, "client.id": "app", "auto.offset.reset": "earliest",
        "enable.metrics.push": False, "statistics.interval.ms": 5, "stats_cb": lambda text: None,
        **({"consumer_byte_rate": limit} if limit else {})}
consumer = Consumer(conf)
consumer.assign([TopicPartition("numbers", number, 0) for number in range(partitions)])
seen = {number: [] for number in range(partitions)}
interrupts = 0
end = time.monotonic() + 140
while interrupts < wanted or sum(map(len, seen.values())) < each * partitions:
    assert time.monotonic() < end, (interrupts, {number: len(found) for number, found in seen.items()})
    if all(len(found) == each for found in seen.values()):
        seen = {number: [] for number in range(partitions)}
        consumer.assign([TopicPartition("numbers", number, 0) for number in range(partitions)])
    messages = []
    try:
        # What an interrupt throws away between a call's return and here is the application's own doing.
        if interrupts < wanted:
            signal.setitimer(signal.ITIMER_REAL, chance.expovariate(1 / 0.003) + 1e-5)
        messages = [consumer.poll(0.05)] if how == "poll" else consumer.consume(chance.choice([2, 50, 900]), 0.05)
    except Stop:
        interrupts += 1
    while True:
        try:
            signal.setitimer(signal.ITIMER_REAL, 0)
            break
        except Stop:
            interrupts += 1
    for message in messages:
        if message is not None:
            assert message.error() is None, message.error()
            seen[message.partition()].append(message.offset())
    if chance.random() < 0.01:
        positions = consumer.position([TopicPartition("numbers", number) for number in range(partitions)])
        told = [max(0, part.offset) for part in positions]
        assert told == [len(found) for found in seen.values()], (told, [len(found) for found in seen.values()])
    for found in seen.values():
        assert not found or found[-1] == len(found) - 1, (len(found), found[-3:])
consumer.close()
print(json.dumps([interrupts, all(found == list(range(each)) for found in seen.values())]))
"""


@pytest.mark.parametrize("how", ["poll", "consume"])
@pytest.mark.parametrize("limit", [None, 2_000_000], ids=["free", "paced"])
def test_interrupts_lose_nothing_and_double_nothing(broker: EmbeddedBroker, how: str, limit: int | None) -> None:
    each = EACH if limit is None else EACH // 20
    broker.create_topic("numbers", PARTITIONS)
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 50})
    for partition in range(PARTITIONS):
        for number in range(each):
            producer.produce("numbers", b"%06d" % number, partition=partition)
        assert producer.flush(60) == 0
    told: list[Any] = [broker.bootstrap_servers, limit, how, INTERRUPTS, each, PARTITIONS]
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, json.dumps(told)], capture_output=True, text=True, check=False, timeout=160
    )
    assert done.returncode == 0, done.stderr[-3_000:]
    interrupts, is_whole = json.loads(done.stdout)
    assert is_whole
    assert interrupts >= INTERRUPTS


class HandlerError(Exception):
    """What a handler raises."""


class ReadWhileASignalComes:
    """A value of a configuration."""

    def __str__(self) -> str:
        signal.raise_signal(signal.SIGUSR1)
        return "g"


def test_a_signal_that_comes_while_a_client_is_made_is_heard() -> None:
    """confluent_kafka itself would say that a name or a value is no text."""

    def stop(*_: object) -> None:
        raise HandlerError

    before = signal.signal(signal.SIGUSR1, stop)
    try:
        with pytest.raises(HandlerError):
            made_apart({"bootstrap.servers": "127.0.0.1:1", "group.id": ReadWhileASignalComes()})
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_what_is_wrong_with_the_configuration_of_such_a_client_is_said() -> None:
    with pytest.raises(confluent_kafka.KafkaException, match="No such configuration property"):
        made_apart({"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "no.such": 1})
