"""Client telemetry to an OpenTelemetry Collector: clients push to the broker (KIP-714), the broker exports OTLP.

python examples/telemetry_to_collector.py [http://COLLECTOR:4318]

Without a URL a small HTTP server stands in for the collector; `kclient-quota broker --otlp URL` does all this.
"""

import gzip
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer

from kclient_telemetry.otlp import parse
from kclient_telemetry.receiver.otlp_export import OtlpExporter
from kclient_telemetry.receiver.otlp_http import HttpSender

from kclient_quota import Producer
from kclient_quota.broker import EmbeddedBroker


class StandIn(BaseHTTPRequestHandler):
    """Prints what a collector would be given."""

    def do_POST(self) -> None:
        """One export."""
        for resource in parse(gzip.decompress(self.rfile.read(int(self.headers["Content-Length"])))).resource_metrics:
            who = {item.key: item.value.string_value for item in resource.resource.attributes}
            names = sum(len(scope.metrics) for scope in resource.scope_metrics)
            print(f"collector: {names} metrics of {who['client_id']} ({who['client_software_name']})")
        self.send_response(200)
        self.end_headers()

    def log_message(self, *arguments: object) -> None:
        """Say nothing."""


def run(url: str) -> None:
    exporter = OtlpExporter(HttpSender(url), linger_ms=100)
    with EmbeddedBroker(topics={"orders": 1}, exporters=[exporter]) as cluster:
        cluster.set_client_metrics("producers", metrics=["org.apache.kafka.producer."], interval_ms=1_000)
        with Producer({"bootstrap.servers": cluster.bootstrap_servers, "client.id": "shop"}) as producer:
            # librdkafka's statistics, where latencies come from, arrive every five seconds while nothing is throttled.
            for number in range(60):
                producer.produce("orders", f"order {number}")
                producer.poll(0)
                time.sleep(0.1)
    print(f"{exporter.counters.received} pushes received, {exporter.counters.exported} exported")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        run(sys.argv[1])
    else:
        server = HTTPServer(("127.0.0.1", 0), StandIn)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        run(f"http://127.0.0.1:{server.server_port}")
