"""From throttled clients to quotas that serve them, all parts real: pushes, receiver, topic, stream, file, apply."""

import json
import threading
from contextlib import contextmanager

import pytest
from kclient_telemetry.messages import uuid_from_text
from kclient_telemetry.receiver.fanout import FanOut
from kclient_telemetry.receiver.plugin import AuthorizableRequestContext, ClientTelemetryContext, ClientTelemetryPayload
from kclient_telemetry.receiver.queued import QueuedSink

from kclient_quota.admin.client_metrics import alter_subscription
from kclient_quota.clients import limits
from kclient_quota.clients.telemetry_topic import TopicWriter
from kclient_quota.clock import SYSTEM_CLOCK
from kclient_quota.cluster.client import ClusterClient
from kclient_quota.demo.closed_loop import (
    ARCHIVE_TOPIC,
    HEADROOM,
    MEMBERS,
    METRICS,
    PUSH_MS,
    QUOTA,
    TOPIC,
    Route,
    close_loop,
    embedded_route,
)
from kclient_quota.demo.fleet import Fleet
from kclient_quota.demo.loop_report import LoopAct
from kclient_quota.demo.report import write
from kclient_quota.spark.quota_table import read_limits
from kclient_quota.testing.apache import ApacheKafka
from tests.conftest import BROKERS
from tests.required import require_apache_kafka

CAMERAS = {member.client_id for member in MEMBERS if member.bytes_per_second > QUOTA}
ASK_MS = 10_000
"""How often clients ask for their limit, in place of once a minute: what is applied is followed so much earlier."""


class Forwarder:
    """What a receiver in Java does: the pushes that Kafka's test plug-in leaves in a folder go into a topic."""

    def __init__(self, folder, sink):
        self.folder = folder
        self.fan_out = FanOut([sink])
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.run)

    def __enter__(self):
        self.thread.start()

    def __exit__(self, *error):
        self.ended.set()
        self.thread.join()
        self.fan_out.close(5_000)

    def run(self):
        while not self.ended.wait(0.2):
            for path in sorted(path for path in self.folder.iterdir() if path.suffix != ".part"):
                _, instance, client_id, interval_ms, *is_last = path.name.split(",")
                sender = AuthorizableRequestContext(client_id=client_id, broker_id=1)
                payload = ClientTelemetryPayload(uuid_from_text(instance), bool(is_last), path.read_bytes())
                self.fan_out.export_metrics(ClientTelemetryContext(int(interval_ms), sender), payload)
                path.unlink()


@contextmanager
def apache_route(folder):
    pushes = folder / "pushes"
    pushes.mkdir()
    properties = {"metric.reporters": "TelemetryReceiver", "telemetry.receiver.folder": str(pushes)}
    with ApacheKafka(topics={TOPIC: 1, ARCHIVE_TOPIC: 1}, properties=properties) as cluster:
        conf = {"bootstrap.servers": cluster.bootstrap_servers}
        cluster.set_quota(default_client_id=True, producer_byte_rate=QUOTA)
        cluster.set_quota(client_id="client-telemetry", producer_byte_rate=1e9)
        with ClusterClient(conf, SYSTEM_CLOCK) as client:
            wanted = {"metrics": ",".join(METRICS), "interval.ms": str(PUSH_MS)}
            alter_subscription(client, "quotas", wanted, timeout_ms=10_000)
        with Forwarder(pushes, QueuedSink(TopicWriter(conf, ARCHIVE_TOPIC))):
            yield Route(cluster.bootstrap_servers, conf, ARCHIVE_TOPIC, folder)


@pytest.fixture(params=BROKERS)
def broker_kind(request):
    return request.param


@pytest.fixture
def route(broker_kind, tmp_path):
    if broker_kind == "apache-kafka":
        require_apache_kafka()
    with (apache_route if broker_kind == "apache-kafka" else embedded_route)(tmp_path) as found:
        yield found


@pytest.mark.timeout(600)
def test_fifty_clients_get_the_quotas_that_they_need(spark, route, tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "REFRESH_MS", ASK_MS)
    said = []
    with Fleet(route.bootstrap_servers, TOPIC, MEMBERS) as fleet:
        closed = close_loop(spark, route, fleet, said.append)
    before, after = closed.before.since(closed.begin), closed.after.since(closed.calm)
    assert closed.before.lacking(closed.begin) >= CAMERAS
    assert min(before[name].wait_ms for name in CAMERAS) > 0.5 * (closed.before.at_ms - closed.begin.at_ms)
    assert closed.after.lacking(closed.calm) == set()
    assert sum(told.throttle_ms for told in after.values()) == 0
    assert all(told.sent > 0 for told in after.values())
    recommended = read_limits(route.file)["producer_byte_rate"]
    overrides = {client for _, client in recommended if isinstance(client, str)}
    assert overrides == CAMERAS
    # That it serves is seen above; that it is not just anything: four times what they send, which may come in bursts.
    rates = {member.client_id: member.bytes_per_second for member in MEMBERS}
    assert all(QUOTA < recommended[None, name] < 4 * HEADROOM * 1.5 * rates[name] for name in CAMERAS)
    assert any(text.startswith(f"{len(CAMERAS)} to add, 1 to change, 0 to remove") for text in said)

    summary, report = write(tmp_path / "report", "a test", "today", [LoopAct(fleet.members, fleet.history, closed)])
    told = json.loads(summary.read_text())["scenes"][0]["findings"]
    assert (told["before"]["cameras_lacking"], told["after"]["cameras_lacking"]) == (10, 0)
    assert told["after"]["meters_lacking"] == 0
    assert told["before"]["cameras_dropped"] > told["after"]["cameras_dropped"]
    page = report.read_text()
    assert page.count("<svg") == 1
    assert "10 of 10" in page
    assert "camera-09" in page
