"""Which request is held to which quota, through the dispatcher and the codec, without sockets (KafkaApis)."""

from collections import deque
from uuid import UUID

import pytest

from kclient_quota.broker.context import ConnectionState, Services
from kclient_quota.broker.control import HANG_UP, IGNORE, Controls
from kclient_quota.broker.dispatch import dispatch
from kclient_quota.broker.enforcement import Enforcement, QuotaSettings
from kclient_quota.broker.log import PartitionLog
from kclient_quota.broker.metrics import broker_metrics, prometheus_page
from kclient_quota.broker.node import Node
from kclient_quota.broker.segments import SegmentPool
from kclient_quota.broker.state import BrokerInfo, ClusterState
from kclient_quota.quota.entity import DEFAULT, ClientQuotaEntity
from kclient_quota.quota.throttle import ThrottleRule
from kclient_quota.wire.codec import decode
from kclient_quota.wire.error_codes import ErrorCode
from kclient_quota.wire.frame import RequestHeader, decode_response_header, encode_request, response_header_version
from kclient_quota.wire.messages import (
    API,
    ApiVersionsRequest,
    ApiVersionsResponse,
    CreateTopicsRequest,
    FetchRequest,
    FetchResponse,
    HeartbeatRequest,
    ListOffsetsRequest,
    MetadataRequest,
    MetadataResponse,
    ProduceRequest,
)
from kclient_quota.wire.records import Record, build_batch

START_MS = 1_700_000_000_000


class ManualScheduler:
    def __init__(self):
        self.time_ms = START_MS
        self.calls = []

    def now_ms(self):
        return self.time_ms

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

    def __init__(self, brokers=1, **settings):
        pool = SegmentPool(1 << 20)
        self.scheduler = ManualScheduler()
        self.state = ClusterState(
            cluster_id="c",
            brokers=[BrokerInfo(i + 1, "127.0.0.1", {"PLAINTEXT": 9000 + i}) for i in range(brokers)],
            new_topic_id=lambda: UUID(int=len(self.state.topics) + 1),
            new_log=lambda config: PartitionLog(pool, config),
        )
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


# -- produce


def test_without_quotas_nothing_is_throttled_or_measured():
    cluster = Cluster()
    assert cluster.produce(500_000).throttle_time_ms == 0
    assert cluster.outcome.mute_ms == 0
    assert cluster.outcome.written is None
    with pytest.raises(KeyError):
        cluster.metric("Produce", "byte-rate")


def test_produce_is_charged_the_request_without_its_length_and_muted_for_what_it_is_told():
    cluster = Cluster()
    cluster.quota(producer_byte_rate=100)
    response = cluster.produce(2000)
    # KIP-124 on a fresh sensor: (size - 10 s x 100 B/s) / (10 s x 100 B/s) x 10 s
    assert response.throttle_time_ms == round((cluster.size - 1000) / 1000 * 10_000)
    assert cluster.outcome.mute_ms == response.throttle_time_ms
    assert cluster.metric("Produce", "byte-rate") == cluster.size / 10
    assert cluster.metric("Produce", "throttle-time") == response.throttle_time_ms
    assert cluster.metric("Produce", "queue-size", "") == 1
    cluster.scheduler.pass_ms(response.throttle_time_ms)
    assert cluster.metric("Produce", "queue-size", "") == 0


def test_the_throttled_batch_is_stored_all_the_same():
    cluster = Cluster()
    cluster.quota(producer_byte_rate=1)
    cluster.produce()
    assert cluster.state.topics["t"].partitions[0].log.end_offset == 1


def test_acks_0_is_muted_without_an_answer_and_its_time_is_exempt():
    cluster = Cluster()
    cluster.quota(producer_byte_rate=1, request_percentage=1)
    cluster.busy_ns = 500_000_000
    assert cluster.produce(acks=0) is None
    assert cluster.outcome.parts == []
    assert cluster.outcome.mute_ms > 0
    assert cluster.metric("Request", "exempt-request-time", "") > 0
    with pytest.raises(KeyError):
        cluster.metric("Request", "request-time")


def test_quotas_hold_per_broker():
    cluster = Cluster(brokers=2)
    cluster.quota(producer_byte_rate=150)
    size_that_fits = 1000
    for broker in (0, 1):
        assert cluster.produce(size_that_fits, partition=broker, broker=broker).throttle_time_ms == 0
    assert cluster.produce(size_that_fits, partition=1, broker=1).throttle_time_ms > 0
    assert cluster.produce(100, partition=0, broker=0).throttle_time_ms == 0


def test_no_client_id_and_an_empty_one_share_one_quota():
    cluster = Cluster()
    cluster.quota({"client-id": DEFAULT}, producer_byte_rate=150)
    assert cluster.produce(client_id="").throttle_time_ms == 0
    assert cluster.produce(client_id=None).throttle_time_ms > 0


def test_a_user_quota_follows_the_principal_of_the_connection():
    cluster = Cluster()
    cluster.quota({"user": "alice"}, producer_byte_rate=1)
    assert cluster.produce().throttle_time_ms == 0
    cluster.connection.principal = "alice"
    assert cluster.produce().throttle_time_ms > 0


# -- fetch


def test_a_fetch_is_cut_to_what_ten_windows_allow_and_gets_one_batch_whatever_it_weighs():
    cluster = Cluster()
    for _ in range(5):
        cluster.produce(1000)
    batch = cluster.state.topics["t"].partitions[0].log.size_bytes // 5
    cluster.quota(consumer_byte_rate=(2 * batch + 300) / 10)
    response = cluster.fetch()
    assert records_of(response) == 0, "what is around the records makes it a little too much"
    assert 0 < response.throttle_time_ms < 500
    cluster.scheduler.pass_ms(response.throttle_time_ms)
    assert records_of(cluster.fetch()) == 2 * batch + 300, "cut in the middle of the third, as Kafka cuts"
    cluster = Cluster()
    cluster.produce(1000)
    cluster.quota(consumer_byte_rate=1)
    assert records_of(cluster.fetch()) == 0, "the whole batch was tried, was too much, and is not sent"
    assert cluster.outcome.mute_ms == pytest.approx(batch * 1000, rel=0.2)


def test_a_fetch_over_the_quota_is_answered_empty_and_not_counted():
    cluster = Cluster()
    cluster.produce(1000)
    cluster.quota(consumer_byte_rate=120)
    first = cluster.fetch()
    assert (first.throttle_time_ms, records_of(first) > 0) == (0, True)
    rate = cluster.metric("Fetch", "byte-rate")
    second = cluster.fetch()
    assert second.throttle_time_ms > 0
    assert (second.responses, second.session_id, second.error_code) == ([], 0, 0)
    assert cluster.outcome.mute_ms == second.throttle_time_ms
    assert cluster.metric("Fetch", "byte-rate") == rate
    cluster.scheduler.pass_ms(second.throttle_time_ms)
    cluster.scheduler.pass_ms(11_000)
    assert records_of(cluster.fetch()) > 0


def test_what_a_fetch_is_charged_is_4_bytes_and_the_body():
    cluster = Cluster()
    cluster.produce(1000)
    cluster.quota(consumer_byte_rate=1e9)
    cluster.fetch()
    body = len(b"".join(cluster.outcome.parts)) - 4 - 4 - 1
    assert cluster.metric("Fetch", "byte-rate") * 10 == pytest.approx(4 + body)


def test_a_request_quota_alone_empties_a_fetch_too_and_its_time_stays_counted():
    cluster = Cluster()
    cluster.produce(1000)
    cluster.quota(request_percentage=1, consumer_byte_rate=1e9)
    cluster.busy_ns = 2_000_000_000
    response = cluster.fetch()
    assert (response.throttle_time_ms, response.responses) == (1000, [])
    assert cluster.metric("Fetch", "byte-rate") == 0
    assert cluster.metric("Request", "request-time") > 1


def test_a_fetch_waits_for_no_more_than_it_may_take():
    cluster = Cluster()
    cluster.produce(1000)
    cluster.produce(1000)
    cluster.quota(consumer_byte_rate=110)
    assert cluster.fetch(min_bytes=1 << 20, max_wait_ms=500) is not None
    assert cluster.fetch(min_bytes=1 << 20, max_wait_ms=500, client_id="other") is None


def test_a_fetch_waits_for_bytes_or_for_its_time():
    cluster = Cluster()
    assert cluster.fetch(max_wait_ms=500) is None
    assert not cluster.drive.is_finished
    waiting = cluster.outcome
    assert waiting is None
    cluster.scheduler.pass_ms(499)
    assert cluster.outcome is None
    cluster.scheduler.pass_ms(1)
    assert cluster.outcome is not None
    assert cluster.fetch(max_wait_ms=500) is None
    log = cluster.state.topics["t"].partitions[0].log
    log.append(build_batch([Record(b"x", timestamp_ms=0)]), leader_epoch=0, now_ms=0)
    assert records_of(cluster._response(1, 12)) > 0
    assert log._watchers == {}


def test_a_client_that_goes_away_while_it_waits_leaves_nothing_behind():
    cluster = Cluster()
    cluster.fetch(max_wait_ms=500)
    cluster.drive.cancel()
    assert cluster.state.topics["t"].partitions[0].log._watchers == {}
    cluster.scheduler.pass_ms(1000)
    assert cluster.outcome is None


# -- everything else


@pytest.mark.parametrize(
    "request_",
    [
        MetadataRequest(topics=[]),
        ApiVersionsRequest(client_software_name="n", client_software_version="1"),
        HeartbeatRequest(group_id="g", generation_id=1, member_id="m"),
        ListOffsetsRequest(replica_id=-1, topics=[]),
    ],
    ids=lambda request: type(request).__name__,
)
def test_every_api_is_held_to_the_request_quota_for_one_window_at_most(request_):
    cluster = Cluster()
    cluster.quota(request_percentage=1)
    cluster.busy_ns = 900_000_000
    version = 4 if isinstance(request_, (ApiVersionsRequest, HeartbeatRequest)) else 10
    response = cluster.send(request_, version if version <= API[request_.__schema__.api_key].max_version else None)
    assert response.throttle_time_ms == 1000
    assert cluster.outcome.mute_ms == 1000
    assert cluster.metric("Request", "throttle-time") == 1000


def test_the_time_of_sending_is_charged_to_the_next_request():
    cluster = Cluster()
    cluster.quota(request_percentage=1)
    cluster.busy_ns = 0
    cluster.send(MetadataRequest(topics=[]))
    before = cluster.metric("Request", "request-time")
    cluster.busy_ns = 300_000_000
    cluster.outcome.written()
    assert cluster.metric("Request", "request-time") > before


def test_requests_per_second_may_be_limited_beside_kafkas_own_quotas():
    cluster = Cluster()
    cluster.quota(request_rate=1)
    throttles = [cluster.send(MetadataRequest(topics=[])).throttle_time_ms for _ in range(12)]
    assert throttles[:10] == [0] * 10
    assert all(throttles[10:])


def test_the_draft_of_kip_124_adds_what_is_left_of_the_request_delay():
    both = {}
    for rule in ThrottleRule:
        cluster = Cluster(rule=rule)
        cluster.quota(producer_byte_rate=1000, request_percentage=1)
        cluster.busy_ns = 10_000_000_000
        both[rule] = cluster.produce(10_500).throttle_time_ms
    assert both[ThrottleRule.KAFKA] == 1000, "the longer of about 600 and 1000"
    assert 1500 < both[ThrottleRule.KIP_124_DRAFT] < 1700, "one after the other"


def test_creating_partitions_is_refused_or_delayed_by_version():
    def wanted(name):
        topic = CreateTopicsRequest.CreatableTopic(name=name, num_partitions=100, replication_factor=1)
        return CreateTopicsRequest(topics=[topic])

    cluster = Cluster()
    cluster.quota(controller_mutation_rate=1)
    assert cluster.send(wanted("one"), 7).topics[0].error_code == 0, "one overdraft is allowed"
    refused = cluster.send(wanted("two"), 7)
    assert refused.topics[0].error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert refused.throttle_time_ms == cluster.outcome.mute_ms > 80_000
    delayed = cluster.send(wanted("three"), 5)
    assert delayed.topics[0].error_code == 0
    assert delayed.throttle_time_ms > refused.throttle_time_ms


# -- what a test may do


def test_an_injected_throttle_is_told_and_muted_and_empties_a_fetch():
    cluster = Cluster()
    cluster.produce()
    cluster.controls.add_throttle(1, "c", 700, 1)
    assert records_of(cluster.fetch(client_id="other")) > 0
    response = cluster.fetch()
    assert (response.throttle_time_ms, response.responses, cluster.outcome.mute_ms) == (700, [], 700)
    assert records_of(cluster.fetch()) > 0
    assert not cluster.controls.has_throttles


def test_a_control_function_sees_answers_and_breaks_requests():
    cluster, seen = Cluster(), []
    cluster.controls.add(3, lambda asked: seen.append(asked.client_id), None)
    assert len(cluster.send(MetadataRequest(topics=None)).topics) == 1
    answers = [MetadataResponse(cluster_id="other"), HANG_UP, IGNORE]
    cluster.controls.add(3, lambda _: answers.pop(0), 3)
    assert cluster.send(MetadataRequest(topics=None)).cluster_id == "other"
    assert cluster.send(MetadataRequest(topics=None)) is None
    assert cluster.outcome.must_close
    assert cluster.send(MetadataRequest(topics=None)) is None
    assert cluster.outcome.is_ignored
    assert cluster.send(MetadataRequest(topics=None)).cluster_id == "c"
    assert seen == ["c"] * 5


def test_requests_are_noted_with_their_size_and_throttle():
    cluster = Cluster()
    cluster.quota(producer_byte_rate=1)
    response = cluster.produce()
    (seen,) = cluster.requests
    assert (seen.api_name, seen.client_id, seen.broker_id) == ("Produce", "c", 1)
    assert (seen.size_bytes, seen.throttle_time_ms) == (cluster.size, response.throttle_time_ms)
    assert seen.response_bytes == len(b"".join(cluster.outcome.parts))


# -- what is no request


def test_api_versions_from_the_future_is_answered_in_version_0():
    cluster = Cluster()
    frame = b"".join(encode_request(ApiVersionsRequest(), RequestHeader(18, 3, 7, "c")))[4:]
    frame = frame[:2] + (99).to_bytes(2) + frame[4:]
    dispatch(cluster.nodes[0], cluster.connection, memoryview(frame), len(frame), cluster._done)
    response = decode(ApiVersionsResponse, 0, b"".join(cluster.outcome.parts)[8:])
    assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert {api.api_key for api in response.api_keys} >= {0, 1, 3, 18}
    assert not cluster.outcome.must_close


@pytest.mark.parametrize(
    "frame",
    [b"", b"\x00\x03", b"\x00\x03\x00\x01\0\0\0\7\xff\xff\x7f\xff\xff\xff", b"\x7f\x00\x00\x00\0\0\0\7\xff\xff"],
)
def test_what_is_malformed_or_unknown_ends_the_connection(frame):
    cluster = Cluster()
    dispatch(cluster.nodes[0], cluster.connection, memoryview(frame), len(frame), cluster._done)
    assert cluster.outcome.must_close
    assert cluster.outcome.parts == []


def test_bytes_behind_a_request_are_passed_over_as_kafka_does():
    cluster = Cluster()
    frame = b"".join(encode_request(MetadataRequest(topics=[]), RequestHeader(3, 9, 7, "c")))[4:] + b"\1\0\0"
    dispatch(cluster.nodes[0], cluster.connection, memoryview(frame), len(frame), cluster._done)
    assert cluster.outcome.parts


def test_before_authentication_only_sasl_and_api_versions_are_answered():
    cluster = Cluster()
    cluster.connection.is_authenticated = False
    assert cluster.send(ApiVersionsRequest(client_software_name="n", client_software_version="1")).api_keys
    assert cluster.send(MetadataRequest(topics=[])) is None
    assert cluster.outcome.must_close


def test_the_prometheus_page_escapes_and_names_as_the_jmx_exporter_does():
    page = prometheus_page(
        {(1, "Produce", "byte-rate", 'user=,client-id=a"b'): 1.5, (1, "Fetch", "queue-size", ""): 0.0}
    )
    assert page.splitlines() == [
        "# TYPE kafka_server_fetch_queue_size gauge",
        'kafka_server_fetch_queue_size{broker="1"} 0.0',
        "# TYPE kafka_server_produce_byte_rate gauge",
        'kafka_server_produce_byte_rate{broker="1",user="",client_id="a\\"b"} 1.5',
    ]


def test_a_fetch_response_of_another_kind_than_expected_is_still_a_response():
    cluster = Cluster()
    cluster.controls.add(1, lambda _: FetchResponse(error_code=ErrorCode.KAFKA_STORAGE_ERROR), 1)
    assert cluster.fetch().error_code == ErrorCode.KAFKA_STORAGE_ERROR
