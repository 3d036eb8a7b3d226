"""One push, several takers."""

from pathlib import Path
from uuid import UUID

import pytest
from kclient_telemetry.errors import InvalidPayloadError
from kclient_telemetry.otlp import parse
from kclient_telemetry.receiver.fanout import FanOut, TelemetrySink
from kclient_telemetry.receiver.plugin import (
    AuthorizableRequestContext,
    ClientTelemetryContext,
    ClientTelemetryExporter,
    ClientTelemetryPayload,
    enrichment_attributes,
)

PAYLOAD = (Path(__file__).parent / "payloads" / "librdkafka-producer-0.bin").read_bytes()
WHO = AuthorizableRequestContext(
    client_id="orders",
    client_address="10.1.2.3",
    client_software_name="librdkafka",
    client_software_version="2.16.0",
    principal="User:alice",
    broker_id=2,
    cluster_id="cluster",
)
PUSH = ClientTelemetryPayload(UUID(int=0x0123456789ABCDEFFEDCBA9876543210), False, PAYLOAD)
CONTEXT = ClientTelemetryContext(30_000, WHO)


class Sink:
    def __init__(self, error=None):
        self.pushes = []
        self.error = error
        self.closed_with = None

    def accept(self, push):
        if self.error:
            raise self.error
        self.pushes.append(push)

    def close(self, timeout_ms):
        self.closed_with = timeout_ms
        if self.error:
            raise self.error


class Plugin:
    def __init__(self):
        self.got = []

    def export_metrics(self, context, payload):
        self.got.append((context, payload))


def test_every_taker_gets_the_push_even_when_one_fails(caplog):
    first, broken, plugin, last = Sink(), Sink(RuntimeError("disk full")), Plugin(), Sink()
    fan_out = FanOut([first, broken, plugin, last], unix_ms=lambda: 77)
    for _ in range(3):
        fan_out.export_metrics(CONTEXT, PUSH)
    assert len(first.pushes) == len(last.pushes) == len(plugin.got) == 3
    assert plugin.got[0] == (CONTEXT, PUSH)
    assert (fan_out.received, fan_out.failures) == (3, [0, 3, 0, 0])
    assert caplog.text.count("disk full") == 1
    fan_out.close(500)
    assert 0 < last.closed_with <= 500
    assert fan_out.failures == [0, 4, 0, 0]


def test_the_push_is_enriched_once_for_all():
    sink = Sink()
    FanOut([sink], unix_ms=lambda: 77).export_metrics(CONTEXT, PUSH)
    (push,) = sink.pushes
    (resource,) = parse(push.enriched).resource_metrics
    assert {pair.key: pair.value.string_value for pair in resource.resource.attributes} == {
        "client_instance_id": "ASNFZ4mrze_-3LqYdlQyEA",
        "client_id": "orders",
        "principal": "User:alice",
        "client_software_name": "librdkafka",
        "client_software_version": "2.16.0",
        "client_source_address": "10.1.2.3",
        "broker_id": "2",
        "cluster_id": "cluster",
    }
    assert push.enriched.startswith(b"\x0a")
    assert PAYLOAD[10:] in push.enriched
    assert (push.received_unix_ms, push.payload.data) == (77, PAYLOAD)


def test_what_is_unknown_or_unwanted_is_left_out():
    nobody = ClientTelemetryContext(1, AuthorizableRequestContext())
    assert set(enrichment_attributes(nobody, PUSH)) == {"client_instance_id", "principal"}
    assert enrichment_attributes(CONTEXT, PUSH, ("client_id",)) == {"client_id": "orders"}
    sink = Sink()
    FanOut([sink], attributes=()).export_metrics(CONTEXT, PUSH)
    assert sink.pushes[0].enriched == PAYLOAD


def test_only_what_is_no_otlp_is_refused():
    sink = Sink()
    fan_out = FanOut([sink])
    with pytest.raises(InvalidPayloadError):
        fan_out.export_metrics(CONTEXT, ClientTelemetryPayload(PUSH.client_instance_id, False, b"\x0a\xff"))
    assert (sink.pushes, fan_out.received) == ([], 0)


def test_the_protocols_tell_sinks_from_plugins():
    assert isinstance(Sink(), TelemetrySink)
    assert not isinstance(Sink(), ClientTelemetryExporter)
    assert isinstance(Plugin(), ClientTelemetryExporter)
    assert isinstance(FanOut([]), ClientTelemetryExporter)
