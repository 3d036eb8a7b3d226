"""Connections on a transport of paper: frames however they arrive, one at a time, in order, muted when throttled."""

import asyncio
import gc
import random
import weakref
from collections import deque
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kclient_quota.broker.cluster_state import BrokerInfo, ClusterState
from kclient_quota.broker.handlers import REGISTRY
from kclient_quota.broker.log.partition_log import PartitionLog
from kclient_quota.broker.log.segments import SegmentPool
from kclient_quota.broker.manners import EVENT_HUBS
from kclient_quota.broker.network.connection import Connection
from kclient_quota.broker.network.frame_buffers import FrameBuffers
from kclient_quota.broker.network.session import RECEIVE_BYTES, ReceiveBuffer
from kclient_quota.broker.request.context import Services
from kclient_quota.broker.request.controls import Controls
from kclient_quota.broker.request.enforcement import Enforcement, QuotaSettings
from kclient_quota.broker.request.node import Node
from kclient_quota.wire.frame import FrameSplitter, RequestHeader, encode_request
from kclient_quota.wire.messages import FetchRequest, MetadataRequest, ProduceRequest
from kclient_quota.wire.records import Record, build_batch
from tests.unit.broker.enforced_cluster import ManualScheduler


class PaperTransport(asyncio.Transport):
    """Takes `takes` bytes at once and holds the rest until `drain`."""

    def __init__(self, protocol, takes=1 << 30):
        super().__init__()
        self.protocol = protocol
        self.takes = takes
        self.written = bytearray()
        self.held = bytearray()
        self.is_reading = True
        self.is_closed = False

    def set_write_buffer_limits(self, high=None, low=None):
        assert (high, low) == (1, 0)

    def get_extra_info(self, name, default=None):
        return ("10.1.2.3", 4) if name == "peername" else default

    def is_closing(self):
        return self.is_closed

    def pause_reading(self):
        assert self.is_reading
        self.is_reading = False

    def resume_reading(self):
        assert not self.is_reading
        self.is_reading = True

    def write(self, data):
        assert not self.held, "written to while it has not taken what it was given"
        self.written += data[: self.takes]
        self.held += data[self.takes :]
        if self.held:
            self.protocol.pause_writing()

    def drain(self):
        while self.held:
            self.written += self.held
            self.held.clear()
            self.protocol.resume_writing()

    def abort(self):
        self.close()

    def close(self):
        if not self.is_closed:
            self.is_closed = True
            self.protocol.connection_lost(None)


class Client:
    """One connection to a broker with a topic `t`; what is sent arrives in pieces of any size."""

    def __init__(self, takes=1 << 30):
        pool = SegmentPool(1 << 22)
        self.scheduler = ManualScheduler()
        info = BrokerInfo(1, "127.0.0.1", {"PLAINTEXT": 9092})
        self.cluster = ClusterState(
            cluster_id="c",
            brokers=[info],
            new_topic_id=lambda: UUID(int=1),
            new_log=lambda config: PartitionLog(pool, config),
        )
        self.log = self.cluster.create_topic("t", 1).partitions[0].log
        self.controls = Controls()
        self.node = Node(
            info,
            self.cluster,
            Services(self.cluster, self.scheduler),
            self.scheduler,
            Enforcement(QuotaSettings(), lambda: 0),
            self.controls,
            REGISTRY,
            deque(),
        )
        self.there, self.gone = [], []
        self.connection = Connection(
            self.node, "PLAINTEXT", ReceiveBuffer(), self._admit, self.gone.append, needs_authentication=False
        )
        self.transport = PaperTransport(self.connection, takes)
        self.connection.connection_made(self.transport)
        self.waiting = bytearray()

    def _admit(self, connection):
        self.there.append(connection)
        connection.admit()

    def send(self, data=b"", piece=RECEIVE_BYTES):
        """Bytes reach the connection as long as it reads; the rest stays in the socket."""
        self.waiting += data
        while self.waiting and self.transport.is_reading and not self.transport.is_closed:
            view = self.connection.get_buffer(-1)
            count = min(len(view), piece, len(self.waiting))
            view[:count] = self.waiting[:count]
            del self.waiting[:count]
            self.connection.buffer_updated(count)

    def correlation_ids(self):
        return [int.from_bytes(frame[:4]) for frame in FrameSplitter().feed(bytes(self.transport.written))]


def metadata(correlation_id):
    return b"".join(encode_request(MetadataRequest(topics=[]), RequestHeader(3, 9, correlation_id, "c")))


def produce(correlation_id, size, acks=-1):
    batch = build_batch([Record(b"%07d" % correlation_id + b"x" * size, timestamp_ms=0)])
    data = ProduceRequest.TopicProduceData(
        name="t", partition_data=[ProduceRequest.PartitionProduceData(index=0, records=batch)]
    )
    request = ProduceRequest(acks=acks, timeout_ms=1, topic_data=[data])
    return b"".join(encode_request(request, RequestHeader(0, 9, correlation_id, "c")))


def fetch(correlation_id, max_wait_ms=0, max_bytes=1 << 25):
    wanted = FetchRequest.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=max_bytes)
    request = FetchRequest(
        max_wait_ms=max_wait_ms, min_bytes=1, topics=[FetchRequest.FetchTopic(topic="t", partitions=[wanted])]
    )
    return b"".join(encode_request(request, RequestHeader(1, 12, correlation_id, "c")))


@settings(max_examples=60, deadline=None)
@given(
    sizes=st.lists(st.one_of(st.integers(0, 300), st.integers(30_000, 400_000)), min_size=1, max_size=8),
    piece=st.sampled_from([1_000, 4_096, 33_000, 100_000, RECEIVE_BYTES]),
    takes=st.sampled_from([1, 100, 1 << 30]),
    seed=st.integers(0, 1 << 16),
)
def test_requests_are_answered_in_order_however_they_arrive(sizes, piece, takes, seed):
    client, shuffle = Client(takes), random.Random(seed)
    stream = b"".join(produce(number, size) + metadata(1000 + number) for number, size in enumerate(sizes))
    while stream:
        cut = shuffle.randint(1, len(stream))
        client.send(stream[:cut], piece)
        stream = stream[cut:]
        client.transport.drain()
    while client.waiting:
        client.transport.drain()
        client.send(piece=piece)
    client.transport.drain()
    expected = [answer for number in range(len(sizes)) for answer in (number, 1000 + number)]
    assert client.correlation_ids() == expected
    stored = b"".join(bytes(batch) for batch in client.log.batches())
    assert [b"%07d" % number in stored for number in range(len(sizes))] == [True] * len(sizes)
    assert client.log.end_offset == len(sizes)


def test_bytes_may_come_one_by_one():
    client = Client()
    client.send(metadata(1) + produce(2, 50) + metadata(3), piece=1)
    assert client.correlation_ids() == [1, 2, 3]


def test_nothing_is_read_or_answered_while_the_connection_is_muted():
    client = Client()
    client.controls.add_throttle(0, None, 500, 1)
    client.send(produce(1, 10) + metadata(2) + metadata(3))
    assert client.correlation_ids() == [1], "the answer comes at once"
    assert not client.transport.is_reading
    client.scheduler.pass_ms(499)
    assert client.correlation_ids() == [1]
    client.scheduler.pass_ms(1)
    assert client.correlation_ids() == [1, 2, 3]
    assert client.transport.is_reading
    client.send(metadata(4))
    assert client.correlation_ids() == [1, 2, 3, 4]


def test_a_late_answer_keeps_everything_behind_it_waiting():
    client = Client()
    client.cluster.manner = EVENT_HUBS
    client.controls.add_throttle(0, None, 500, 1)
    client.send(produce(1, 10) + metadata(2))
    client.send(metadata(3))
    assert not client.transport.is_reading
    client.scheduler.pass_ms(499)
    assert client.correlation_ids() == []
    client.scheduler.pass_ms(1)
    assert client.correlation_ids() == [1, 2]
    client.send()
    assert client.correlation_ids() == [1, 2, 3]
    assert client.node.enforcement.managers.next_end_ms() is None


def test_a_client_that_leaves_before_its_late_answer_is_not_answered():
    client = Client()
    client.cluster.manner = EVENT_HUBS
    client.controls.add_throttle(0, None, 500, 1)
    client.send(produce(1, 10))
    client.transport.close()
    client.scheduler.pass_ms(1_000)
    assert client.transport.written == b""
    assert client.log.end_offset == 1


def test_every_throttle_of_pipelined_requests_is_served_one_after_the_other():
    client = Client()
    client.controls.add_throttle(0, None, 100, 5)
    client.send(b"".join(produce(number, 10, acks=-1) for number in range(5)))
    answered = []
    for _ in range(5):
        answered.append(len(client.correlation_ids()))
        client.scheduler.pass_ms(100)
    assert answered == [1, 2, 3, 4, 5]


def test_a_large_frame_is_received_into_a_buffer_of_its_own_while_others_wait_behind():
    client = Client()
    client.send(metadata(1) + produce(2, 3_000_00) + metadata(3) + produce(4, 700_000) + metadata(5), piece=50_000)
    assert client.correlation_ids() == [1, 2, 3, 4, 5]


def test_a_waiting_fetch_holds_up_what_comes_behind_it_and_its_connection_only():
    client = Client()
    client.send(fetch(1, max_wait_ms=1000) + metadata(2))
    assert client.correlation_ids() == []
    client.log.append(build_batch([Record(b"x", timestamp_ms=0)]), leader_epoch=0, now_ms=0)
    assert client.correlation_ids() == [1, 2]
    assert client.transport.is_reading


def test_a_response_that_the_socket_does_not_take_holds_up_the_next_request():
    client = Client()
    for number in range(40):
        client.send(produce(number, 100_000))
    client.transport.written.clear()
    client.transport.takes = 100_000
    client.send(fetch(50) + metadata(51))
    assert 0 < len(client.transport.written) < 200_000, "one piece at a time, so that asyncio copies little"
    client.transport.drain()
    assert client.correlation_ids() == [50, 51]


def test_a_client_that_leaves_in_the_middle_leaves_nothing():
    client = Client()
    client.send(fetch(1, max_wait_ms=1000))
    client.transport.close()
    assert client.log._watchers == {}
    assert client.there == client.gone == [client.connection]
    assert client.node.traffic.connections == 0
    client.scheduler.pass_ms(5000)
    assert client.transport.written == b""


def test_a_client_that_leaves_while_muted_is_not_answered_later():
    client = Client()
    client.controls.add_throttle(0, None, 500, 1)
    client.send(produce(1, 10) + metadata(2))
    client.transport.close()
    client.scheduler.pass_ms(1000)
    assert client.correlation_ids() == [1]


@pytest.mark.parametrize("start", [b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"GET / HTTP/1.1\r\n\r\n"])
def test_what_is_no_frame_ends_the_connection_before_memory_is_given_to_it(start):
    client = Client()
    client.send(metadata(1) + start)
    assert client.transport.is_closed
    assert client.connection.session._receive.frames._kept_bytes == 0


def test_acks_0_has_no_answer_and_the_next_request_is_taken_up():
    client = Client()
    client.send(produce(1, 10, acks=0) + metadata(2))
    assert client.correlation_ids() == [2]
    assert client.log.end_offset == 1


def test_frame_buffers_are_used_again_and_not_hoarded():
    frames = FrameBuffers()
    first = frames.take(100_000)
    assert len(first) == 131_072
    frames.give_back(first)
    assert frames.take(70_000) is first
    for _ in range(3):
        frames.give_back(bytearray(32 << 20))
    assert frames._kept_bytes == 64 << 20


@pytest.mark.parametrize("last", ["nothing", "answered", "unwritten", "waiting"])
def test_a_connection_that_has_ended_is_freed_without_a_collection(last):
    client = Client(takes=1 if last == "unwritten" else 1 << 30)
    gc.disable()
    try:
        if last != "nothing":
            client.send(fetch(1, max_wait_ms=60_000) if last == "waiting" else metadata(1))
        client.transport.close()
        assert client.gone == client.there
        ended = [weakref.ref(client.connection), weakref.ref(client.transport)]
        client.there.clear()
        client.gone.clear()
        # what is left of it is the client's, which knows its connection
        client.connection = client.transport = None
        assert [one() for one in ended] == [None, None]
        client.scheduler.pass_ms(60_000)
    finally:
        gc.enable()
