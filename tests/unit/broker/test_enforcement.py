"""Which request is held to which quota, through the dispatcher and the codec, without sockets (KafkaApis)."""

import math

import pytest
from kclient_telemetry.receiver.exposition import page
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics

from kclient_quota.broker.metrics import families_of
from kclient_quota.broker.request.controls import HANG_UP, IGNORE
from kclient_quota.broker.request.dispatch import dispatch
from kclient_quota.quota.entity import DEFAULT
from kclient_quota.quota.throttle import ThrottleRule
from kclient_quota.wire.codec import decode
from kclient_quota.wire.error_codes import ErrorCode
from kclient_quota.wire.frame import RequestHeader, encode_request
from kclient_quota.wire.messages import (
    API,
    ApiVersionsRequest,
    ApiVersionsResponse,
    CreateTopicsRequest,
    FetchResponse,
    HeartbeatRequest,
    ListOffsetsRequest,
    MetadataRequest,
    MetadataResponse,
)
from kclient_quota.wire.records import Record, build_batch
from tests.unit.broker.enforced_cluster import Cluster, records_of

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
    families = families_of(
        {
            (1, "Produce", "byte-rate", 'user=,client-id=a"b'): 1.5,
            (2, "Produce", "byte-rate", "user=u=v"): math.nan,
            (1, "socket-server-metrics", "request-total", ""): 3.0,
        }
    )
    body, _ = page(families)
    assert [line for line in body.decode().splitlines() if not line.startswith("# HELP")] == [
        "# TYPE kafka_server_produce_byte_rate gauge",
        'kafka_server_produce_byte_rate{broker="1",client_id="a\\"b",user=""} 1.5',
        'kafka_server_produce_byte_rate{broker="2",user="u=v"} NaN',
        "# TYPE kafka_server_socket_server_metrics_request_total counter",
        'kafka_server_socket_server_metrics_request_total{broker="1"} 3.0',
    ]
    body, kind = page(families, "application/openmetrics-text; version=1.0.0")
    assert kind.startswith("application/openmetrics-text")
    assert len(list(parse_openmetrics(body.decode()))) == 2


def test_a_fetch_response_of_another_kind_than_expected_is_still_a_response():
    cluster = Cluster()
    cluster.controls.add(1, lambda _: FetchResponse(error_code=ErrorCode.KAFKA_STORAGE_ERROR), 1)
    assert cluster.fetch().error_code == ErrorCode.KAFKA_STORAGE_ERROR
