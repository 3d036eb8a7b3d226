"""Fetch sessions (KIP-227) and who leads instead (KIP-951), answer by answer on both brokers."""

import time

import pytest

from kclient_quota.wire import messages as m
from kclient_quota.wire.records import Record, build_batch
from tests.contract.administered import eventually
from tests.contract.wire_client import ask, connected

pytestmark = pytest.mark.timeout(120)
NO_SUCH_SESSION, WRONG_EPOCH, UNKNOWN_TOPIC, NOT_LEADER = 70, 71, 3, 6
FINAL = -1


def fetch(session=0, epoch=0, read=(), forget=(), topic=None, max_wait_ms=0):
    """A Fetch of (topic, partition, offset)s."""
    names = dict.fromkeys(name for name, _, _ in read)
    topics = [
        m.FetchRequest.FetchTopic(
            topic=name,
            topic_id=topic or m.FetchRequest.FetchTopic().topic_id,
            partitions=[
                m.FetchRequest.FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=1000)
                for other, index, offset in read
                if other == name
            ],
        )
        for name in names
    ]
    return m.FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=100_000,
        session_id=session,
        session_epoch=epoch,
        topics=topics,
        forgotten_topics_data=[m.FetchRequest.ForgottenTopic(topic=name, partitions=[i]) for name, i in forget],
    )


def found(answer):
    """(error, session, {partition: (error, bytes of records)})."""
    rows = {
        data.partition_index: (data.error_code, len(data.records or b""))
        for topic in answer.responses
        for data in topic.partitions
    }
    return answer.error_code, answer.session_id, rows


def produce(topic, index=0):
    batch = build_batch([Record(value=b"x", timestamp_ms=time.time_ns() // 1_000_000)])
    data = m.ProduceRequest.PartitionProduceData(index=index, records=bytes(batch))
    named = m.ProduceRequest.TopicProduceData(name=topic, partition_data=[data])
    return m.ProduceRequest(acks=1, timeout_ms=5_000, topic_data=[named])


def create(wire, name, partitions):
    topic = m.CreateTopicsRequest.CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
    answer = ask(wire, m.CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 7)
    assert answer.topics[0].error_code == 0


@pytest.fixture
def topic(cluster, unique):
    name = unique("sessions")
    with connected(cluster) as wire:
        create(wire, name, 3)
        for index in range(3):
            eventually(
                lambda index=index: ask(wire, produce(name, index), 9).responses[0].partition_responses[0].error_code,
                lambda error: error == 0,
            )
    return name


def test_only_what_is_new_is_told(cluster, topic):
    with connected(cluster) as wire:
        error, session, rows = found(ask(wire, fetch(read=[(topic, index, 1) for index in range(3)]), 12))
        assert (error, rows) == (0, {0: (0, 0), 1: (0, 0), 2: (0, 0)})
        assert session > 0
        assert found(ask(wire, fetch(session, 1), 12)) == (0, session, {})
        size = len(produce(topic).topic_data[0].partition_data[0].records)
        ask(wire, produce(topic, 1), 9)
        assert found(ask(wire, fetch(session, 2), 12)) == (0, session, {1: (0, size)})
        assert found(ask(wire, fetch(session, 3), 12)) == (0, session, {1: (0, size)}), "it is still to be read"
        assert found(ask(wire, fetch(session, 4, read=[(topic, 1, 2)]), 12)) == (0, session, {})
        ask(wire, produce(topic, 1), 9)
        ask(wire, produce(topic, 2), 9)
        assert found(ask(wire, fetch(session, 5, forget=[(topic, 2)]), 12)) == (0, session, {1: (0, size)})
        assert found(ask(wire, fetch(session, 6, read=[(topic, 1, 3)]), 12)) == (0, session, {})
        rows = found(ask(wire, fetch(session, 7, read=[(topic, 9, 0)]), 12))
        assert rows == (0, session, {9: (UNKNOWN_TOPIC, 0)})
        assert found(ask(wire, fetch(session, 8), 12)) == rows, "until it has gone"


def test_sessions_are_fenced_and_end(cluster, topic):
    read = [(topic, 0, 1)]
    with connected(cluster) as wire:
        session = ask(wire, fetch(read=read), 12).session_id
        assert found(ask(wire, fetch(session, 2), 12))[0] == WRONG_EPOCH
        assert found(ask(wire, fetch(session, 1), 12)) == (0, session, {})
        assert found(ask(wire, fetch(session, 1), 12))[0] == WRONG_EPOCH
        assert found(ask(wire, fetch(1 << 30, 1), 12))[0] == NO_SUCH_SESSION
        assert found(ask(wire, fetch(session, FINAL, read=read), 12)) == (0, 0, {0: (0, 0)})
        assert found(ask(wire, fetch(session, 2), 12))[0] == NO_SUCH_SESSION
        session = ask(wire, fetch(read=read), 12).session_id
        assert found(ask(wire, fetch(session, 1, forget=[(topic, 0)]), 12)) == (0, 0, {})
        assert found(ask(wire, fetch(session, 2), 12))[0] == NO_SUCH_SESSION


def test_who_does_not_lead_says_who_does(three_brokers, unique):
    name = unique("led")
    servers = three_brokers.bootstrap_servers.split(",")
    with connected(three_brokers) as wire:
        create(wire, name, 1)
        named = m.MetadataRequest.MetadataRequestTopic(name=name)
        answer = eventually(
            lambda: ask(wire, m.MetadataRequest(topics=[named]), 12), lambda found: not found.topics[0].error_code
        )
    leader, topic_id = answer.topics[0].partitions[0].leader_id, answer.topics[0].topic_id
    (node,) = (broker for broker in answer.brokers if broker.node_id == leader)
    other = next(server for server in servers if not server.endswith(f":{node.port}"))
    with connected(three_brokers, servers=other) as wire:

        def told(answer, part):
            (end,) = answer.node_endpoints
            return part.error_code, part.current_leader.leader_id, (end.node_id, end.host, end.port)

        wanted = (NOT_LEADER, leader, (node.node_id, node.host, node.port))
        written = eventually(
            lambda: ask(wire, produce(name), 10),
            lambda found: found.responses[0].partition_responses[0].error_code == NOT_LEADER,
        )
        assert told(written, written.responses[0].partition_responses[0]) == wanted
        read = ask(wire, fetch(epoch=FINAL, read=[(name, 0, 0)], topic=topic_id), 16)
        assert told(read, read.responses[0].partitions[0]) == wanted
        older = ask(wire, fetch(epoch=FINAL, read=[(name, 0, 0)], topic=topic_id), 15)
        assert (found(older)[2], older.node_endpoints) == ({0: (NOT_LEADER, 0)}, [])
