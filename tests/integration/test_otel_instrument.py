"""`instrument()` with OpenTelemetry's own SDK, exporters and instrumentation, on the embedded broker."""

import gc
import gzip
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from kclient_telemetry.otlp import parse
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader, PeriodicExportingMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from kclient_quota import Consumer, Producer, ProducerInterceptor, instrument
from kclient_quota.broker import EmbeddedBroker
from kclient_quota.clients import interceptor, live

pytestmark = pytest.mark.usefixtures("only_what_is_new")

QUOTA = 200_000


@pytest.fixture
def cluster():
    with EmbeddedBroker(topics={"orders": 1}) as running:
        running.set_quota(default_client_id=True, producer_byte_rate=QUOTA, consumer_byte_rate=QUOTA)
        yield running


@pytest.fixture
def instrumented():
    """Calls `instrument` and takes it back."""
    undo = []
    yield lambda *args: undo.append(instrument(*args))
    for each in undo:
        each()
    assert interceptor.everywhere == []


@pytest.fixture
def conf(cluster):
    gc.collect()
    return {"bootstrap.servers": cluster.bootstrap_servers, "client.id": "shop"}


def collected(reader):
    """`{name: [(attributes, value, unit)]}`."""
    found = {}
    data = reader.get_metrics_data()
    for resource in data.resource_metrics if data else ():
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                points = [(dict(point.attributes), point.value, metric.unit) for point in metric.data.data_points]
                found[metric.name] = points
    return found


def shown(found, name, **attributes):
    return [(value, unit) for have, value, unit in found.get(name, ()) if attributes.items() <= have.items()]


def of(found, name, **attributes):
    values = shown(found, name, **attributes)
    assert len(values) == 1, found.get(name)
    return values[0][0]


def consume(consumer, count):
    messages, end = [], time.monotonic() + 60
    while len(messages) < count and time.monotonic() < end:
        message = consumer.poll(0.2)
        if message is not None:
            messages.append(message)
    return messages


def told_of_its_broker(producer):
    """Until the first statistics have come; what is let through before then is no broker's yet."""
    end = time.monotonic() + 60
    while -1 in producer.quota_state() and time.monotonic() < end:
        time.sleep(0.05)


def test_metrics_of_clients_made_before_and_after(conf, instrumented):
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader], shutdown_on_exit=False)
    producer = Producer({**conf, "linger.ms": 60_000})  # nothing leaves before flush()
    instrumented(provider)
    for number in range(100):
        producer.produce("orders", b"x" * 1_000)
        if number == 9:
            found = collected(reader)
            assert of(found, "kafka.producer.queue.messages", **{"messaging.client.id": "shop"}) == len(producer) == 10
        if number % 10 == 9:
            assert producer.flush(60) == 0
    consumer = Consumer({**conf, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["orders"])
    consume(consumer, 40)
    told_of_its_broker(producer)
    time.sleep(0.6)  # an instrument is not asked again within half a second
    found = collected(reader)
    who = {"messaging.system": "kafka", "messaging.client.id": "shop"}
    assert of(found, "kafka.client.quota.limit", **who, **{"kafka.client.type": "producer"}) == QUOTA
    assert of(found, "kafka.client.quota.limit", **who, **{"kafka.client.type": "consumer"}) == QUOTA
    assert of(found, "kafka.client.quota.io", **who, **{"kafka.client.type": "producer"}) > 100_000
    # clients of other tests may still be about in this process, as those of a library are in an application
    shop = {"client-id": "shop"}
    assert of(found, "kafka.consumer.records_lag", **shop, topic="orders", partition="0") == 60
    assert of(found, "kafka.consumer.records_lag_max", **shop) == 60
    of_a_client_and_its_nodes = shown(found, "kafka.producer.produce_throttle_time_avg", **shop)
    assert of_a_client_and_its_nodes
    assert all(average >= 0 and unit == "ms" for average, unit in of_a_client_and_its_nodes)
    waited = of(found, "kafka.producer.quota_wait_time_total", **shop)
    consumer.close()
    producer.close()
    del producer, consumer
    gc.collect()
    time.sleep(0.6)
    found = collected(reader)
    assert not shown(found, "kafka.client.quota.limit", **who), "of clients that are gone nothing is shown"
    counted = of(found, "kafka.producer.quota_wait_time_total", **shop)
    assert counted == waited, "but what they have counted is not taken back"
    provider.shutdown()


def test_the_official_exporter_takes_them_to_a_collector(conf, instrumented):
    posted, arrived = [], threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            posted.append(gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body)
            self.send_response(200)
            self.end_headers()
            arrived.set()

        def log_message(self, *args):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server, Producer(conf):
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        exporter = OTLPMetricExporter(f"http://127.0.0.1:{server.server_port}/v1/metrics", timeout=60)
        provider = MeterProvider([PeriodicExportingMetricReader(exporter, 60_000)], shutdown_on_exit=False)
        instrumented(provider)
        assert provider.force_flush(60_000)
        provider.shutdown()
        server.shutdown()
    assert arrived.is_set()
    metrics = {m.name for r in parse(posted[0]).resource_metrics for s in r.scope_metrics for m in s.metrics}
    assert {"kafka.producer.queue.messages", "kafka.producer.produce_throttle_time_max"} <= metrics


@pytest.fixture
def spans():
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    exporter.provider = provider
    yield exporter
    provider.shutdown()


class Keeping(ProducerInterceptor):
    def __init__(self):
        self.seen = []

    def on_send(self, record):
        self.seen.append(record)
        return record


def test_a_producers_span_ends_at_delivery_and_a_consumers_links_to_it(conf, spans, instrumented):
    instrumented(None, spans.provider)
    mine = Keeping()
    with Producer({**conf, "interceptor.classes": [mine]}) as producer:
        with trace.get_tracer("app", tracer_provider=spans.provider).start_as_current_span("checkout") as checkout:
            producer.produce("orders", b"x", key=b"k", headers={"mine": b"1"})
        assert [span.name for span in spans.get_finished_spans()] == ["checkout"], "not before it is delivered"
        assert producer.flush(60) == 0
    (send,) = [span for span in spans.get_finished_spans() if span.name == "send orders"]
    assert send.kind is SpanKind.PRODUCER
    assert send.parent.span_id == checkout.get_span_context().span_id
    assert send.status.status_code is StatusCode.UNSET
    assert dict(send.attributes) == {
        "messaging.system": "kafka",
        "messaging.operation.type": "send",
        "messaging.operation.name": "send",
        "messaging.destination.name": "orders",
        "messaging.client.id": "shop",
        "messaging.kafka.message.key": "k",
        "messaging.destination.partition.id": "0",
        "messaging.kafka.offset": 0,
    }
    assert dict(mine.seen[0].headers)["mine"] == b"1"
    consumer = Consumer({**conf, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["orders"])
    (message,) = consume(consumer, 1)
    consumer.close()
    assert {"mine", "traceparent"} == {key for key, _ in message.headers()}
    (poll,) = [span for span in spans.get_finished_spans() if span.name == "poll orders"]
    assert [link.context.span_id for link in poll.links] == [send.context.span_id]
    assert poll.attributes["messaging.consumer.group.name"] == "g"
    assert poll.attributes["messaging.batch.message_count"] == 1


def test_a_message_that_fails_ends_its_span_with_the_error(conf, spans, instrumented):
    instrumented(None, spans.provider)
    with Producer({**conf, "message.max.bytes": 2_000}) as producer, pytest.raises(Exception, match="MSG_SIZE"):
        producer.produce("orders", b"x" * 5_000)
    (span,) = spans.get_finished_spans()
    assert span.status.status_code is StatusCode.ERROR
    assert span.attributes["error.type"]


def test_no_spans_without_a_provider_and_none_per_message_for_metrics(conf, instrumented):
    instrumented(MeterProvider([InMemoryMetricReader()], shutdown_on_exit=False))
    assert interceptor.everywhere == []
    with Producer(conf) as producer:
        assert not producer._kq_chain
        assert any(client is producer for client in live.clients().values())


def test_beside_opentelemetrys_own_instrumentation(conf, spans, instrumented):
    contrib = pytest.importorskip("opentelemetry.instrumentation.confluent_kafka").ConfluentKafkaInstrumentor
    instrumented(None, spans.provider)
    with Producer(conf) as mine:
        proxied = contrib.instrument_producer(mine, spans.provider)
        proxied.produce("orders", b"x")
        assert proxied.flush(60) == 0
    named = {span.name: span for span in spans.get_finished_spans()}
    ours = named.pop("send orders")
    (theirs,) = named.values()
    assert ours.parent.span_id == theirs.context.span_id


AUTO = """
import sys
from opentelemetry.instrumentation.confluent_kafka import ConfluentKafkaInstrumentor
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

spans = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(spans))
ConfluentKafkaInstrumentor().instrument(tracer_provider=provider)  # as `opentelemetry-instrument` does, before all else
from kclient_quota import Consumer, Producer, instrument

if sys.argv[2] == "both":
    instrument(None, provider)
conf = {"bootstrap.servers": sys.argv[1], "client.id": "shop"}
told = []
with Producer(conf) as producer:
    producer.produce("orders", b"x", on_delivery=lambda error, message: told.append((error, message.offset())))
    assert producer.flush(60) == 0
assert told == [(None, 0)], told
with Consumer({**conf, "group.id": sys.argv[2], "auto.offset.reset": "earliest"}) as consumer:
    consumer.subscribe(["orders"])
    while (message := consumer.poll(1)) is None:
        pass
assert message.value() == b"x"
assert [key for key, _ in message.headers()].count("traceparent") >= 1
found = {span.name: span for span in spans.get_finished_spans()}
print(*sorted(found))
if "send orders" in found:
    link, = found["poll orders"].links
    assert link.context.span_id == found["send orders"].context.span_id
"""


@pytest.mark.parametrize(
    ("which", "named"), [("theirs", {"orders send"}), ("both", {"orders send", "send orders", "poll orders"})]
)
def test_in_a_process_that_opentelemetry_has_instrumented_before(cluster, which, named):
    pytest.importorskip("opentelemetry.instrumentation.confluent_kafka")
    words = [sys.executable, "-c", AUTO, cluster.bootstrap_servers, which]
    done = subprocess.run(words, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    assert all(name in done.stdout for name in named), done.stdout
    assert "Traceback" not in done.stderr
