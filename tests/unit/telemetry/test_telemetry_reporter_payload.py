"""What a reporter puts into a push: temporality, compression, and no more than the broker takes."""

import itertools
import logging

import pytest
from kclient_telemetry.client.actions import Done
from kclient_telemetry.compression import CompressionType, decompress
from kclient_telemetry.errors import ErrorCode
from kclient_telemetry.metric import MetricKind, MetricName
from kclient_telemetry.otlp import parse

from tests.unit.telemetry.reporter_bench import INTERVAL, UNIX, Bench, value_of


def test_deltas_of_refused_and_failed_pushes_are_not_lost():
    bench = Bench().ready()
    bench.total = 5
    assert value_of(bench.push()) == 5
    bench.total = 8
    bench.wait()
    assert value_of(bench.push(ErrorCode.THROTTLING_QUOTA_EXCEEDED)) == 3
    bench.wait()
    bench.ready()
    bench.total = 9
    action = bench.push(code=None)
    assert value_of(action) == 4
    bench.reporter.request_failed(action.request_id, bench.now)
    bench.wait()
    bench.ready()
    assert value_of(bench.push()) == 4
    bench.wait()
    assert value_of(bench.push()) == 0


def test_cumulative_temporality_and_its_change():
    bench = Bench().ready(delta_temporality=False)
    bench.total = 5
    assert value_of(bench.push()) == 5
    bench.wait()
    assert value_of(bench.push(ErrorCode.UNKNOWN_SUBSCRIPTION_ID)) == 5
    bench.ready(delta_temporality=True)
    assert value_of(bench.push()) == 5
    bench.wait()
    assert value_of(bench.push()) == 0


@pytest.mark.parametrize("accepted", list(itertools.permutations((1, 2, 3, 4), 2)))
def test_the_brokers_favourite_compression_is_used(accepted):
    bench = Bench().ready(accepted_compression_types=accepted)
    action = bench.push()
    assert action.request.compression_type == accepted[0]
    assert value_of(action) == 1


@pytest.mark.parametrize("accepted", [(), (0,), (0, 4), (77,)])
def test_no_compression_where_none_is_accepted(accepted):
    assert Bench().ready(accepted_compression_types=accepted).push().request.compression_type == 0


def test_a_codec_that_fails_is_not_tried_again():
    tried = []

    def compressor(data, kind):
        tried.append(kind)
        if kind is not CompressionType.GZIP:
            raise ImportError(kind.name)
        return b"gz" + data

    bench = Bench(compressor=compressor).ready()
    assert bench.push().request.compression_type == CompressionType.GZIP
    bench.wait()
    bench.push()
    assert tried == [CompressionType.ZSTD, CompressionType.LZ4, CompressionType.GZIP, CompressionType.GZIP]
    assert bench.reporter.payload_counters.compression_failures == 2


def test_a_codec_the_broker_refuses_is_not_sent_again():
    bench = Bench().ready()
    assert bench.push(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE).request.compression_type == CompressionType.ZSTD
    bench.ready()
    assert bench.push().request.compression_type == CompressionType.LZ4


def many_metrics(bench, count=50):
    for number in range(count):
        name = MetricName(f"metric-{number}", "app-metrics")
        bench.collector.register_metric_for_subscription(name, lambda n=number: n, MetricKind.SUM, unix_ms=UNIX)
    return count + 1


def names_in(action):
    payload = decompress(action.request.metrics, action.request.compression_type, 1 << 20)
    return [m.name for r in parse(payload).resource_metrics for s in r.scope_metrics for m in s.metrics]


def test_the_size_bound_is_kept_and_every_metric_gets_its_turn(caplog):
    bench = Bench()
    count = many_metrics(bench)
    bench.ready(telemetry_max_bytes=1_000, accepted_compression_types=())
    seen = set()
    with caplog.at_level(logging.WARNING):
        for _ in range(10):
            action = bench.push()
            assert len(action.request.metrics) <= 1_000
            seen.update(names_in(action))
            bench.wait()
    assert len(seen) == count
    assert bench.reporter.payload_counters.deferred_points > 0
    assert bench.reporter.payload_counters.dropped_points == 0
    assert "1000 bytes" in caplog.text


def test_a_metric_too_large_for_any_push_is_counted():
    bench = Bench()
    bench.collector.register_metric_for_subscription(MetricName("x" * 2_000, "g"), lambda: 1, unix_ms=UNIX)
    bench.ready(telemetry_max_bytes=1_000)
    assert names_in(bench.push()) == ["org.apache.kafka.app.events"]
    assert bench.reporter.payload_counters.dropped_points == 1


def test_what_is_too_large_for_the_broker_is_halved_until_it_fits():
    bench = Bench()
    many_metrics(bench, 300)
    bench.ready(accepted_compression_types=())
    sizes = []
    for _ in range(3):
        sizes.append(len(bench.push(ErrorCode.TELEMETRY_TOO_LARGE).request.metrics))
        bench.wait()
        bench.ready(accepted_compression_types=())
    assert sizes[1] <= sizes[0] // 2
    assert sizes[2] <= sizes[1] // 2
    bench.push(ErrorCode.UNKNOWN_SUBSCRIPTION_ID)
    bench.ready(accepted_compression_types=(), telemetry_max_bytes=2_000_000)
    assert len(bench.push().request.metrics) == sizes[0]


def test_after_a_refusal_the_size_grows_again_until_everything_fits():
    bench = Bench()
    count = many_metrics(bench, 100)
    bench.ready(accepted_compression_types=())
    refused = len(bench.push(ErrorCode.TELEMETRY_TOO_LARGE).request.metrics)
    bench.wait()
    bench.ready(accepted_compression_types=())
    sizes = []
    while not sizes or sizes[-1] < refused:
        action = bench.push()
        sizes.append(len(action.request.metrics))
        bench.wait()
        assert len(sizes) < 10
    assert sizes == sorted(sizes)
    assert len(names_in(action)) == count


def test_a_payload_that_grows_by_compression_is_sent_as_it_is():
    bench = Bench(compressor=lambda data, kind: data * 2)
    bench.ready()
    plain = len(bench.push().request.metrics) // 2
    other = Bench(compressor=lambda data, kind: data * 2).ready(telemetry_max_bytes=plain)
    action = other.push()
    assert (action.request.compression_type, len(action.request.metrics)) == (0, plain)


def test_what_cannot_be_encoded_is_tried_again_an_interval_later(caplog):
    bench = Bench()
    bench.collector.update_labels({"client_rack": "\ud800"})
    bench.ready()
    with caplog.at_level(logging.ERROR):
        assert bench.wait() == INTERVAL
    assert "could not be encoded" in caplog.text
    bench.collector.update_labels({"client_rack": "east"})
    assert value_of(bench.push()) == 1


BAD = {
    "tag": MetricName("bad", "g", tags=(("topic", "\ud800"),)),
    "key of a tag": MetricName("bad", "g", tags=(("\ud800", "t"),)),
    "name": MetricName("bad\ud800", "g"),
}


@pytest.mark.parametrize("what", BAD)
def test_a_metric_that_cannot_be_encoded_costs_itself_alone_and_is_told_of_once(what, caplog):
    bench = Bench()
    bench.collector.register_metric_for_subscription(BAD[what], lambda: 1, unix_ms=UNIX)
    bench.ready()
    with caplog.at_level(logging.WARNING):
        for number in (1, 2):
            assert len(names_in(bench.push())) == 1
            assert bench.reporter.payload_counters.dropped_points == number
            bench.wait()
    assert [record.getMessage()[:7] for record in caplog.records] == ["metric "]


@pytest.mark.parametrize(("value", "pushed"), [(True, 1), (False, 0), (10**400, None), (-(10**400), None)])
@pytest.mark.parametrize("kind", [MetricKind.GAUGE, MetricKind.SUM])
def test_a_value_that_no_push_can_hold_keeps_no_other_from_being_pushed(value, pushed, kind):
    bench = Bench()
    bench.collector.register_metric_for_subscription(
        MetricName("is-well", "app-metrics"), lambda: value, kind, unix_ms=UNIX
    )
    (resource,) = parse(decompress(bench.ready().push().request.metrics, 4, 1 << 20)).resource_metrics
    found = {
        metric.name.rpartition(".")[2]: getattr(metric, metric.WhichOneof("data")).data_points[0].as_int
        for metric in resource.scope_metrics[0].metrics
    }
    assert found.pop("well", None) == pushed
    assert found == {"events": 1}
    assert bench.collector.failures == (pushed is None)


def test_a_terminating_push_that_cannot_be_encoded_ends_all_the_same():
    bench = Bench().ready()
    bench.collector.update_labels({"client_rack": "\ud800"})
    bench.reporter.close(bench.now, bench.now + 100)
    assert bench.tick() == Done()
