"""Three brokers behind proxies, of both kinds, with the same verbs for what breaks them."""

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from kclient_telemetry.otlp import parse

from kclient_quota.clock import SYSTEM_CLOCK
from kclient_quota.cluster.client import ClusterClient
from kclient_quota.testing.apache.apart import ApacheKafkaApart
from kclient_quota.testing.proxies import Proxies
from kclient_quota.wire.messages import IncrementalAlterConfigsRequest
from tests.faults.embedded import EmbeddedApart
from tests.faults.telemetry import INTERVAL_MS, METRICS, delivered_in
from tests.required import require_apache_kafka

REPLICATED = {
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "min.insync.replicas": "1",
}
CLIENT_METRICS = 16


class ApacheApart(ApacheKafkaApart):
    """Three JVMs that take telemetry."""

    def __init__(self, proxies: Proxies) -> None:
        self._pushes = tempfile.TemporaryDirectory()
        taken = {"metric.reporters": "TelemetryReceiver", "telemetry.receiver.folder": self._pushes.name}
        super().__init__(brokers=3, heap_mb=384, advertised_ports=proxies.ports, properties={**REPLICATED, **taken})
        self._proxies = proxies

    def __enter__(self) -> Self:
        super().__enter__()
        self._proxies.stand_before(self)
        configs = {"metrics": ",".join(METRICS), "interval.ms": str(INTERVAL_MS)}
        resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
            resource_type=CLIENT_METRICS,
            resource_name="all",
            configs=[
                IncrementalAlterConfigsRequest.AlterableConfig(name=key, config_operation=0, value=value)
                for key, value in configs.items()
            ],
        )
        with ClusterClient({"bootstrap.servers": self.bootstrap_servers}, SYSTEM_CLOCK) as client:
            asked = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
            assert client.ask(asked).responses[0].error_code == 0
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, trace)
        self._pushes.cleanup()

    @property
    def processes(self) -> list[int]:
        """Of the brokers."""
        return [self.process_of(node_id) for node_id in (1, 2, 3)]

    def kill_all(self) -> None:
        """SIGKILL for every broker; their data stays."""
        for node_id in (1, 2, 3):
            self.kill_broker(node_id)

    def start_all(self) -> None:
        """Start what was killed, the controller first."""
        for node_id in (1, 2, 3):
            self.start_broker(node_id)

    def told_by(self, client_id: str) -> list[tuple[int, int]]:
        """What each push told of deliveries that was taken."""
        files = sorted(Path(self._pushes.name).glob(f"*,{client_id},*"))
        return [delivered_in(parse(file.read_bytes())) for file in files if not file.name.endswith(".part")]


def cluster_of(kind: str) -> Iterator[tuple[Any, Proxies]]:
    """Running brokers, and the roads to them."""
    if kind == "Apache":
        require_apache_kafka()
    with ExitStack() as stack:
        proxies = stack.enter_context(Proxies(3))
        yield stack.enter_context({"Apache": ApacheApart, "embedded": EmbeddedApart}[kind](proxies)), proxies
