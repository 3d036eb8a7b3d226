"""What coordinators' topics say, read with Apache Kafka's own classes."""

import json
import subprocess
import time
from base64 import urlsafe_b64encode
from functools import cache
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition

from kclient_quota.testing.apache.artefacts import class_path
from kclient_quota.wire.messages import MetadataRequest

OFFSETS, SHARE_STATE = "__consumer_offsets", "__share_group_state"
_READER = Path(__file__).parent / "CoordinatorRecords.java"


def records_about(cluster, name, topic=OFFSETS):
    """Everything that is said of a group so far, keys and values, in the order of its partition."""
    conf = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "reader", "enable.auto.commit": False}
    reader = Consumer(conf)
    wanted = len(name).to_bytes(2, "big") + name.encode()
    try:
        partitions = reader.list_topics(topic, timeout=60).topics[topic].partitions
        ends = {index: reader.get_watermark_offsets(TopicPartition(topic, index), timeout=60) for index in partitions}
        left = {index: end for index, (begin, end) in ends.items() if end > begin}
        reader.assign([TopicPartition(topic, index, 0) for index in left])
        found, until = [], time.monotonic() + 60
        while left:
            assert time.monotonic() < until, left
            for message in reader.consume(500, 0.2):
                assert message.error() is None, message.error()
                if message.key()[2:].startswith(wanted):
                    found.append((message.key(), message.value()))
            for spot in reader.position([TopicPartition(topic, index) for index in left]):
                if spot.offset >= left[spot.partition]:
                    del left[spot.partition]
    finally:
        reader.close()
    return found


@cache
def _reader():
    """A process that ends with this one."""
    command = ["java", "-Xshare:auto", "-XX:TieredStopAtLevel=1", "-cp", class_path(), str(_READER)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)


def as_json(records, topic=OFFSETS):
    """(type, key, value) of each, as Kafka's formatters print them."""
    reader, rows = _reader(), []
    for key, value in records:
        reader.stdin.write(f"{topic} {key.hex()} {'-' if value is None else value.hex()}\n")
        row = json.loads(reader.stdout.readline())
        assert not row["left"], "there is more in it than is read"
        rows.append((row["type"], row["key"], row["value"]))
    return rows


def latest(rows):
    """What is left of them by compaction: values by type and the rest of the key."""
    found = {_about(kind, key): value for kind, key, value in rows}
    return {key: value for key, value in found.items() if value is not None}


def compacted(rows):
    """The last of each key, in order: a coordinator that has not heard of a new topic tells of an empty group first."""
    last = {_about(kind, key): index for index, (kind, key, _) in enumerate(rows)}
    return [rows[index] for index in sorted(last.values())]


def _about(kind, key):
    return kind, *(text for field, text in key.items() if field not in {"groupId", "group"})


def plain(value, topic_id):
    """A value without what differs from time to time: the topic's id, epochs, times, hashes that are there."""
    if isinstance(value, list):
        return [plain(one, topic_id) for one in value]
    if not isinstance(value, dict):
        return value
    told = {}
    for name, one in value.items():
        if name == "topicId":
            assert one == as_java(topic_id)
            told[name] = "its"
        elif name == "assignmentEpochs":
            told[name] = len(one)
        elif name in {"metadataHash", "assignmentTimestamp"}:
            told[name] = "a number" if name == "metadataHash" else "a time"
            told[name] = told[name] if one else 0
        elif not name.lower().endswith(("epoch", "timestamp")) and name != "version":
            told[name] = plain(one, topic_id)
    return told


def as_java(topic_id):
    """As Java's `Uuid.toString`."""
    return urlsafe_b64encode(topic_id.bytes).rstrip(b"=").decode()


def assert_internal(cluster, talk, topic):
    """Metadata says so, and clients cannot write to it."""
    (found,) = talk.ask(MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=topic)]), 12).topics
    assert (found.error_code, found.is_internal) == (0, True)
    told = []
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    producer.produce(topic, b"v", b"k", partition=0, on_delivery=lambda error, _: told.append(error.name()))
    producer.flush(60)
    assert told == ["TOPIC_EXCEPTION"]
