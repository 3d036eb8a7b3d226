"""Brokers that enforce quotas, spoken to in frames without sockets."""

from collections import deque
from uuid import UUID

from kclient_quota.broker.cluster_state import BrokerInfo, ClusterState
from kclient_quota.broker.handlers import REGISTRY
from kclient_quota.broker.log.partition_log import PartitionLog
from kclient_quota.broker.log.segments import SegmentPool
from kclient_quota.broker.manners import KAFKA
from kclient_quota.broker.metrics import broker_metrics
from kclient_quota.broker.request.context import ConnectionState, Services
from kclient_quota.broker.request.controls import Controls
from kclient_quota.broker.request.dispatch import dispatch
from kclient_quota.broker.request.enforcement import Enforcement, QuotaSettings
from kclient_quota.broker.request.node import Node
from kclient_quota.quota.entity import ClientQuotaEntity
from kclient_quota.wire.codec import decode
from kclient_quota.wire.frame import RequestHeader, decode_response_header, encode_request, response_header_version
from kclient_quota.wire.messages import API, FetchRequest, ProduceRequest
from kclient_quota.wire.records import Record, build_batch

START_MS = 1_700_000_000_000


class ManualScheduler:
    def __init__(self):
        self.time_ms = START_MS
        self.calls = []

    def now_ms(self):
        return self.time_ms

    date_ms = now_ms

    def call_at(self, deadline_ms, callback):
        call = Call(deadline_ms, callback)
        self.calls.append(call)
        return call

    def pass_ms(self, duration_ms):
        self.time_ms += duration_ms
        due = [call for call in self.calls if call.deadline_ms <= self.time_ms]
        self.calls = [call for call in self.calls if call.deadline_ms > self.time_ms]
        for call in due:
            call.callback()


class Call:
    def __init__(self, deadline_ms, callback):
        self.deadline_ms = deadline_ms
        self.callback = callback

    def cancel(self):
        self.callback = lambda: None


class Cluster:
    """Brokers over one topic `t` with a partition for each, spoken to in frames; busy time is what the test says."""

    def __init__(self, brokers=1, manner=KAFKA, **settings):
        pool = SegmentPool(1 << 20)
        self.scheduler = ManualScheduler()
        self.state = ClusterState(
            cluster_id="c",
            brokers=[BrokerInfo(i + 1, "127.0.0.1", {"PLAINTEXT": 9000 + i}) for i in range(brokers)],
            new_topic_id=lambda: UUID(int=len(self.state.topics) + 1),
            new_log=lambda config: PartitionLog(pool, config),
        )
        self.state.manner = manner
        self.state.create_topic("t", brokers)
        services = Services(self.state, self.scheduler)
        self.busy_ns = 0
        self._clock_ns = 0
        self.controls = Controls()
        self.requests = deque()
        self.nodes = [
            Node(
                info,
                self.state,
                services,
                self.scheduler,
                Enforcement(QuotaSettings(**settings), self._thread_ns),
                self.controls,
                REGISTRY,
                self.requests,
            )
            for info in self.state.brokers.values()
        ]
        self.state.on_quota.append(self._follow)
        self.connection = ConnectionState("PLAINTEXT", "127.0.0.1")
        self.outcome = None

    def _follow(self, entity, key, value):
        for node in self.nodes:
            node.enforcement.update_quota(entity, key, value)

    def _thread_ns(self):
        self._clock_ns += self.busy_ns
        return self._clock_ns + 1

    def quota(self, entity=None, **limits):
        for key, value in limits.items():
            self.state.set_quota(ClientQuotaEntity(entity or {"client-id": "c"}), key, value)

    def send(self, request, version=None, *, client_id="c", broker=0):
        """The response, None when there is none; `outcome` says what a listener would do."""
        schema = request.__schema__
        version = API[schema.api_key].max_version if version is None else version
        frame = b"".join(encode_request(request, RequestHeader(schema.api_key, version, 7, client_id)))[4:]
        self.outcome = None
        self.size = len(frame)
        self.drive = dispatch(self.nodes[broker], self.connection, memoryview(frame), len(frame), self._done)
        return self._response(schema.api_key, version)

    def _done(self, outcome):
        assert self.outcome is None, "one outcome only"
        self.outcome = outcome

    def _response(self, key, version):
        if self.outcome is None or not self.outcome.parts:
            return None
        frame = b"".join(self.outcome.parts)
        assert int.from_bytes(frame[:4]) == len(frame) - 4
        header, position = decode_response_header(frame, response_header_version(key, version), 4)
        assert header.correlation_id == 7
        if self.outcome.written is not None:
            self.outcome.written()
        return decode(API[key].response, version, frame, position)

    # -- requests

    def produce(self, size=1000, *, acks=-1, partition=0, broker=0, **known):
        batch = build_batch([Record(b"x" * size, timestamp_ms=0)])
        data = ProduceRequest.TopicProduceData(
            name="t", partition_data=[ProduceRequest.PartitionProduceData(index=partition, records=batch)]
        )
        request = ProduceRequest(acks=acks, timeout_ms=1000, topic_data=[data])
        return self.send(request, 11, broker=broker, **known)

    def fetch(self, offset=0, max_bytes=1 << 20, min_bytes=1, max_wait_ms=0, **known):
        wanted = FetchRequest.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=max_bytes)
        request = FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=min_bytes,
            max_bytes=max_bytes,
            topics=[FetchRequest.FetchTopic(topic="t", partitions=[wanted])],
        )
        return self.send(request, 12, **known)

    def metric(self, group, name, tags="user=,client-id=c", broker=1):
        return broker_metrics(self.nodes)[broker, group, name, tags]


def records_of(response):
    return sum(len(data.records or b"") for topic in response.responses for data in topic.partitions)
