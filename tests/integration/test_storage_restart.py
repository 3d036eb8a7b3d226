"""The embedded broker's data directory: an orderly restart, and the end by SIGKILL in the middle of writing."""

import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager, suppress
from types import SimpleNamespace

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

import kclient_quota
from kclient_quota.broker import EmbeddedBroker
from kclient_quota.errors import ConfigError
from tests.contract.group_talk import Talk, fetch_offsets
from tests.contract.test_group_transactions_contract import Producer as TransactionalProducer
from tests.contract.test_group_transactions_contract import read_log

FENCED_WHO_WRITES = 47


def read_all(broker, count_of_partitions=1, **config):
    """Every value of topic t, by partition end."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "reader",
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **config,
        }
    )
    consumer.assign([TopicPartition("t", index, 0) for index in range(count_of_partitions)])
    values, ended, deadline = [], 0, time.monotonic() + 60
    while ended < count_of_partitions:
        assert time.monotonic() < deadline
        message = consumer.poll(0.5)
        if message is None:
            continue
        if message.error():
            assert message.error().code() == KafkaError._PARTITION_EOF
            ended += 1
        else:
            values.append(message.value())
    consumer.close()
    return values


def test_an_orderly_restart_keeps_records_offsets_and_quotas(tmp_path):
    with EmbeddedBroker(topics={"t": 1}, data_dir=tmp_path) as broker:
        broker.set_quota(client_id="slow", producer_byte_rate=1234.0)
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "enable.idempotence": True})
        for number in range(100):
            producer.produce("t", str(number))
        assert producer.flush(60) == 0
        group = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "g"})
        group.commit(offsets=[TopicPartition("t", 0, 42)], asynchronous=False)
        group.close()
        with pytest.raises(ConfigError, match="another broker uses this directory"):
            EmbeddedBroker(data_dir=tmp_path).start()
    with EmbeddedBroker(topics={"t": 1}, data_dir=tmp_path) as broker:
        assert read_all(broker) == [str(number).encode() for number in range(100)]
        group = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "g"})
        assert group.committed([TopicPartition("t", 0)], 60)[0].offset == 42
        group.close()
        quotas = broker._call(lambda: {str(e): dict(v) for e, v in broker._running().cluster.quotas.items()})
        assert quotas == {"{client-id=slow}": {"producer_byte_rate": 1234.0}}


WRITER = """
import sys, time
import kclient_quota
from kclient_quota.broker import EmbeddedBroker
broker = EmbeddedBroker(topics={"t": 1}, data_dir=sys.argv[1]).start()
print(broker.bootstrap_servers, flush=True)
time.sleep(600)
"""


def test_nothing_acknowledged_is_lost_by_kill_9(tmp_path):
    acknowledged, last_commit = set(), -1
    for _ in range(3):
        process = subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE, text=True)
        try:
            address = process.stdout.readline().strip()
            last_commit = _write_until_killed(address, process, acknowledged, last_commit)
        finally:
            process.kill()
            process.wait()
            process.stdout.close()
    with EmbeddedBroker(data_dir=tmp_path) as broker:
        stored = read_all(broker)
        assert acknowledged, "something must have been acknowledged for this to prove anything"
        assert acknowledged <= set(stored)
        group = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "g"})
        assert group.committed([TopicPartition("t", 0)], 60)[0].offset >= last_commit
        group.close()


def _write_until_killed(address, process, acknowledged, last_commit):
    before = len(acknowledged)

    def delivered(error, message):
        if error is None:
            acknowledged.add(message.value())

    quiet = {"bootstrap.servers": address, "log_level": 0}
    producer = Producer(quiet | {"linger.ms": 0, "message.timeout.ms": 2000})
    group = Consumer(quiet | {"group.id": "g"})
    started, number = time.monotonic(), 0
    while time.monotonic() < started + 0.7 or len(acknowledged) == before:
        assert time.monotonic() < started + 60
        for _ in range(50):
            producer.produce("t", f"{process.pid}-{number}".encode(), on_delivery=delivered)
            number += 1
        producer.poll(0.01)
        group.commit(offsets=[TopicPartition("t", 0, last_commit + 1)], asynchronous=False)
        last_commit += 1
    os.kill(process.pid, signal.SIGKILL)
    with suppress(Exception):
        producer.flush(3)
    group.close()
    return last_commit


@contextmanager
def process_of(data_dir):
    """A broker in a process of its own, which ends by SIGKILL: where it is."""
    process = subprocess.Popen([sys.executable, "-c", WRITER, str(data_dir)], stdout=subprocess.PIPE, text=True)
    try:
        yield SimpleNamespace(bootstrap_servers=process.stdout.readline().strip())
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_a_transaction_goes_on_after_kill_9(tmp_path):
    with process_of(tmp_path) as broker, ExitStack() as stack:
        talk = Talk(broker, stack)
        talk.ready("g")
        producers = [TransactionalProducer(talk, name) for name in ("goes on", "comes anew")]
        for producer in producers:
            assert producer.write("t", version=12) == 0
        assert producers[0].commit_offset("g", "t", 7, version=5) == 0
    with process_of(tmp_path) as broker, ExitStack() as stack:
        talk = Talk(broker, stack)
        for producer in producers:
            producer.talk = talk
            assert producer.write("t", version=12) == 0, "its epoch, its sequence and its transaction are known"
        assert read_log(talk, "t", committed=True)[:2] == (4, 0), "both are open"
        assert fetch_offsets(talk, "g", "t")[1][0][1] == -1
        again = TransactionalProducer(talk, "comes anew")
        assert (again.id, again.epoch) == (producers[1].id, producers[1].epoch + 2)
        assert producers[0].end(commit=True) == 0
    with EmbeddedBroker(data_dir=tmp_path) as broker, ExitStack() as stack:
        for producer in (*producers, again):
            producer.talk = Talk(broker, stack)
        assert producers[1].write("t", version=12) == FENCED_WHO_WRITES
        assert producers[0].end(commit=True) == 0, "asked again, it is done"
        assert fetch_offsets(producers[0].talk, "g", "t") == (0, [(0, 7, "", 0)])
        assert len(read_all(broker, **{"isolation.level": "read_committed"})) == 2
        assert len(read_all(broker, **{"isolation.level": "read_uncommitted"})) == 4


def test_an_open_transaction_is_not_read_after_an_orderly_restart(tmp_path):
    with EmbeddedBroker(topics={"t": 1}, data_dir=tmp_path) as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "x", "log_level": 0})
        producer.init_transactions(60)
        producer.begin_transaction()
        producer.produce("t", b"committed")
        producer.commit_transaction(60)
        producer.begin_transaction()
        producer.produce("t", b"open")
        assert producer.flush(60) == 0
    with EmbeddedBroker(data_dir=tmp_path) as broker:
        assert read_all(broker, **{"isolation.level": "read_committed"}) == [b"committed"]
        assert read_all(broker, **{"isolation.level": "read_uncommitted"}) == [b"committed", b"open"]


def test_what_is_done_in_turns_ends_before_the_directory_is_let_go_of(tmp_path):
    """Or the markers of a transaction would be written into files of the broker that comes next."""
    seen = []
    broker = EmbeddedBroker(data_dir=tmp_path)
    broker.start()
    runtime = broker._running()
    scheduler, storage = runtime._scheduler, runtime._storage
    is_open, close = [True], storage.close

    def closing():
        close()
        is_open.clear()

    def turn():
        seen.append(bool(is_open))
        scheduler.call_at(scheduler.now_ms() + 1, turn)

    storage.close = closing
    try:
        broker._call(turn)
    finally:
        broker.close()
    assert not is_open
    assert all(seen)


@pytest.mark.parametrize("cls", [Consumer, kclient_quota.Consumer], ids=["plain", "ours"])
def test_a_consumer_of_kip_848_goes_on_after_a_restart(tmp_path, cls):
    with EmbeddedBroker(topics={"t": 1}, data_dir=tmp_path) as broker:
        port = int(broker.bootstrap_servers.rsplit(":", 1)[1])
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
        consumer = cls(
            {
                "bootstrap.servers": broker.bootstrap_servers,
                "group.id": "g",
                "group.protocol": "consumer",
                "auto.offset.reset": "earliest",
                "reconnect.backoff.max.ms": 100,
                "log_level": 0,
            }
        )
        consumer.subscribe(["t"])
        producer.produce("t", b"before")
        assert producer.flush(60) == 0
        assert next_value(consumer) == b"before"
        consumer.commit(asynchronous=False)
    with EmbeddedBroker(topics={"t": 1}, data_dir=tmp_path, ports=port):
        producer.produce("t", b"after")
        assert producer.flush(60) == 0
        assert next_value(consumer) == b"after"
        consumer.close()


def next_value(consumer):
    """The next message; what passes by itself is waited out, what is the end of the consumer is not."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        message = consumer.poll(0.5)
        if message is not None and not message.error():
            return message.value()
        assert message is None or not message.error().fatal(), message.error()
    raise AssertionError("nothing has come within a minute")
