"""What a test may see of an embedded cluster and do to it, beside topics, quotas and whole brokers."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from kclient_telemetry.errors import TelemetryError
from kclient_telemetry.receiver.subscription import INTERVAL_MS, MATCH, METRICS, metrics_subscription

from kclient_quota.broker.cluster_state import CLIENT_METRICS, ClusterState
from kclient_quota.broker.metrics import broker_metrics
from kclient_quota.broker.network.endpoints import PLAINTEXT
from kclient_quota.broker.request.controls import ControlFunction, SeenRequest
from kclient_quota.broker.request.faults import Faults, api_number
from kclient_quota.broker.runtime import Runtime
from kclient_quota.broker.telemetry_service import ClientTelemetryService, SeenPush
from kclient_quota.errors import ClusterError, ConfigError

ResultT = TypeVar("ResultT")


class ControlPanel(ABC):
    """Mixed into `EmbeddedBroker`, which knows how to call on the brokers' thread."""

    @abstractmethod
    def _running(self) -> Runtime: ...

    @abstractmethod
    def _call(self, function: Callable[[], ResultT]) -> ResultT: ...

    # -- what a test may see

    @property
    def requests(self) -> list[SeenRequest]:
        """The last 100,000 requests that were answered, oldest first."""
        return self._call(lambda: list(self._running().requests))

    @property
    def pushes(self) -> list[SeenPush]:
        """The last 10,000 telemetry pushes that were taken, oldest first."""
        return self._call(lambda: list(self._telemetry().pushes))

    def metrics(self) -> dict[tuple[int, str, str, str], float]:
        """Broker-side metrics by (broker id, group, name, "tag=value,..."), named as Kafka names them."""
        return self._call(lambda: broker_metrics(self._running().nodes.values()))

    # -- addresses

    def advertise(self, broker_id: int, port: int, listener: str = PLAINTEXT) -> None:
        """Tell clients another port of a broker than it listens on, as where a proxy stands before it.

        Raises:
            ConfigError: there is no such broker or listener.
        """

        def change() -> None:
            broker = self._running().cluster.brokers.get(broker_id)
            if broker is None or listener not in broker.ports:
                raise ConfigError(f"there is no {listener} listener of a broker {broker_id}")
            broker.ports[listener] = port

        self._call(change)

    # -- client metrics

    def set_client_metrics(
        self,
        name: str,
        *,
        metrics: Sequence[str] = ("*",),
        interval_ms: int | None = None,
        match: Mapping[str, str] | None = None,
    ) -> None:
        """Ask clients for metrics (KIP-714); sets the whole subscription.

        Args:
            name: of the subscription, a client-metrics resource.
            metrics: prefixes of telemetry names, such as `org.apache.kafka.producer.`; `*` alone for everything.
            interval_ms: between two pushes, 100 to 3,600,000; None for Kafka's 300,000.
            match: patterns by what must match them: client_id, client_instance_id, client_software_name,
                client_software_version, client_source_address, client_source_port.

        Raises:
            ConfigError: a value cannot be used.
        """
        wanted = {METRICS: ",".join([metrics] if isinstance(metrics, str) else metrics)}
        if interval_ms is not None:
            wanted[INTERVAL_MS] = str(interval_ms)
        if match:
            wanted[MATCH] = ",".join(f"{key}={pattern}" for key, pattern in match.items())
        try:
            metrics_subscription(name, wanted)
        except TelemetryError as error:
            raise ConfigError(f"client metrics {name!r}: {error}") from error
        cluster = self._running().cluster
        self._call(lambda: _replace(cluster, name, wanted))

    def delete_client_metrics(self, name: str) -> None:
        """Take a subscription away; nothing if there is none."""
        cluster = self._running().cluster
        self._call(lambda: _replace(cluster, name, {}))

    def _telemetry(self) -> ClientTelemetryService:
        services = self._running().services
        if services is None:
            raise ClusterError("the embedded broker has not started yet")
        return services.get(ClientTelemetryService)

    # -- what a test may do

    @property
    def faults(self) -> Faults:
        """What is to go wrong: `broker.faults.delay_on("Produce", 500)`; see `Faults`."""
        return self._running().faults

    def control(self, api_key: str | int | None, function: ControlFunction, *, times: int | None = 1) -> None:
        """Show the next requests to a function before any handler.

        Args:
            api_key: Kafka's number or name of the API, None for every API.
            function: called on the broker's thread with an `Intercepted`; what it returns is the answer: a response of
                `kclient_quota.wire.messages`, `HANG_UP`, `IGNORE`, or None to let the request pass. It may call the
                broker's own methods. What it raises ends the connection, and is raised again when the broker is
                closed, so that an assertion in it fails the test.
            times: after how many requests that it answered the function is forgotten; None for never.
        """
        key = api_number(api_key)
        self._call(lambda: self._running().controls.add(key, function, times))

    def clear_controls(self) -> None:
        """Forget every `control` and `throttle_next` that still waits."""
        self._call(self._running().controls.clear)

    def throttle_next(
        self, api_key: str | int | None, throttle_time_ms: int, *, times: int = 1, client_id: str | None = None
    ) -> None:
        """Let the next responses carry at least this throttle time, and mute their connections for it.

        Args:
            api_key: Kafka's number of the API, None for every API.
            throttle_time_ms: milliseconds.
            times: how many responses.
            client_id: only to this client.
        """
        if throttle_time_ms < 1 or times < 1:
            raise ConfigError(f"throttle_time_ms and times must be at least 1, not {throttle_time_ms} and {times}")
        key = api_number(api_key)
        self._call(lambda: self._running().controls.add_throttle(key, client_id, throttle_time_ms, times))

    def kill_connections(self, client_id: str | None = None) -> int:
        """Cut every connection, or those whose last request named `client_id`; how many there were."""
        return self._call(lambda: self._running().kill_connections(client_id))


def save(cluster: ClusterState) -> None:
    """Keep what has changed.

    Raises:
        ClusterError: it could not be kept (a full disk), and has been undone.
    """
    try:
        cluster.save()
    except OSError as error:
        raise ClusterError(f"the change could not be kept, and is undone: {error}; make room in data_dir") from error


def _replace(cluster: ClusterState, name: str, wanted: Mapping[str, str]) -> None:
    for key in {**cluster.configs.get((CLIENT_METRICS, name), {}), **wanted}:
        cluster.set_config(CLIENT_METRICS, name, key, wanted.get(key))
    save(cluster)
