"""`kclient-quota broker --otlp URL`: the receiver for a developer's desk, in one line."""

import gzip
import signal
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import confluent_kafka
import pytest
from kclient_telemetry.otlp import parse


@pytest.fixture
def collector():
    """An HTTP server and what has been posted to it."""
    posted = []
    arrived = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            posted.append((self.path, parse(gzip.decompress(body))))
            self.send_response(200)
            self.end_headers()
            arrived.set()

        def log_message(self, *args):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", posted, arrived
        server.shutdown()


def test_a_plain_clients_telemetry_reaches_the_collector(collector):
    url, posted, arrived = collector
    command = [
        sys.executable, "-m", "kclient_quota.broker", "--port", "0", "--topic", "t", "--otlp", url,
        "--client-metrics-interval-ms", "200",
    ]  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as broker:
        try:
            servers = broker.stdout.readline().strip().removeprefix("bootstrap.servers=")
            producer = confluent_kafka.Producer({"bootstrap.servers": servers, "client.id": "desk"})
            producer.produce("t", b"x")
            assert producer.flush(60) == 0
            assert arrived.wait(60)
        finally:
            broker.send_signal(signal.SIGTERM)
    assert broker.returncode == 0
    path, request = posted[0]
    assert path == "/v1/metrics"
    attributes = {a.key: a.value.string_value for r in request.resource_metrics for a in r.resource.attributes}
    assert (attributes["client_id"], attributes["client_software_name"]) == ("desk", "confluent-kafka-python")
