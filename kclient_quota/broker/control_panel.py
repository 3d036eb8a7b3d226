"""What a test may see of a running embedded cluster and do to it, beside whole brokers."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from kclient_telemetry.errors import TelemetryError
from kclient_telemetry.receiver.subscription import INTERVAL_MS, MATCH, METRICS, metrics_subscription

from kclient_quota.broker.cluster_state import CLIENT_METRICS, TOPIC, ClusterState
from kclient_quota.broker.configs.resource_configs import topic_config_problem
from kclient_quota.broker.configs.topic_names import MAX_PARTITIONS, topic_name_problem
from kclient_quota.broker.metrics import broker_metrics
from kclient_quota.broker.network.endpoints import PLAINTEXT, SASL_PLAINTEXT, SASL_SSL, SSL, address_of
from kclient_quota.broker.request.controls import ControlFunction, SeenRequest
from kclient_quota.broker.request.faults import Faults, api_number
from kclient_quota.broker.runtime import Runtime
from kclient_quota.broker.telemetry_service import ClientTelemetryService, SeenPush
from kclient_quota.errors import ClusterError, ConfigError
from kclient_quota.quota.entity import DEFAULT, QUOTA_KEYS, ClientQuotaEntity, entity_problem, quota_problem

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

    @property
    def bootstrap_servers(self) -> str:
        """Addresses of the plain-text listeners; where PLAINTEXT is not served, of the first listener that is."""
        first = next(iter(self._running().cluster.brokers.values())).ports
        return self.bootstrap_servers_of(PLAINTEXT if PLAINTEXT in first else next(iter(first)))

    @property
    def sasl_bootstrap_servers(self) -> str:
        """Addresses of the SASL_PLAINTEXT listeners; only with `users`."""
        return self.bootstrap_servers_of(SASL_PLAINTEXT)

    @property
    def tls_bootstrap_servers(self) -> str:
        """Addresses of the SSL listeners; only with `tls_pem`."""
        return self.bootstrap_servers_of(SSL)

    @property
    def sasl_tls_bootstrap_servers(self) -> str:
        """Addresses of the SASL_SSL listeners; only with `users` and `tls_pem`."""
        return self.bootstrap_servers_of(SASL_SSL)

    @property
    def listeners(self) -> list[str]:
        """Names of the listeners that are served."""
        return list(next(iter(self._running().cluster.brokers.values())).ports)

    def bootstrap_servers_of(self, listener: str) -> str:
        """Addresses of one listener of every broker.

        Raises:
            ConfigError: there is no such listener.
        """
        brokers = self._running().cluster.brokers.values()
        addresses = [address_of(broker.host, broker.ports[listener]) for broker in brokers if listener in broker.ports]
        if not addresses:
            raise ConfigError(f"there is no {listener} listener: SASL needs users= or oauth=, TLS tls_pem=")
        return ",".join(addresses)

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

    # -- topics and quotas

    def create_topic(
        self, name: str, partitions: int = 1, configs: Mapping[str, str] | None = None, *, replication: int = 1
    ) -> None:
        """Create a topic, its leaders spread over the brokers in turn.

        Raises:
            ConfigError: the name, a number or a configuration cannot be used, or the topic exists.
            ClusterError: it could not be kept in `data_dir`.
        """
        cluster = self._running().cluster
        brokers, problem = len(cluster.brokers), topic_name_problem(name)
        if problem or not 1 <= partitions <= MAX_PARTITIONS or not 1 <= replication <= brokers:
            raise ConfigError(
                problem
                or f"topic {name!r}: partitions must be 1 to {MAX_PARTITIONS} (not {partitions}), "
                f"replication 1 to {brokers} (not {replication})"
            )
        for key, value in (configs or {}).items():
            if problem := topic_config_problem(key, value):
                raise ConfigError(f"topic {name!r}: {problem}")

        def create() -> None:
            if name in cluster.topics:
                raise ConfigError(f"topic {name!r} exists already")
            for key, value in (configs or {}).items():
                cluster.set_config(TOPIC, name, key, value)
            cluster.create_topic(name, partitions, replication_factor=replication)
            save(cluster)

        self._call(create)

    def set_quota(
        self,
        *,
        client_id: str | None = None,
        user: str | None = None,
        ip: str | None = None,
        default_client_id: bool = False,
        default_user: bool = False,
        default_ip: bool = False,
        **limits: float | None,
    ) -> None:
        """Set the quotas of one entity, removing those that are None or not named.

        Args:
            client_id: the client-id, alone or with `user`.
            user: the user.
            ip: the address.
            default_client_id: whoever has no client-id entry.
            default_user: whoever has no user entry.
            default_ip: whoever has no address entry.
            limits: by Kafka's keys (`producer_byte_rate`, ...), per second and broker.

        Raises:
            ConfigError: the entity or a limit cannot be used.
        """
        entity = ClientQuotaEntity.of(
            user=DEFAULT if default_user else user,
            client_id=DEFAULT if default_client_id else client_id,
            ip=DEFAULT if default_ip else ip,
        )
        kinds = list(entity.entries)
        problem = entity_problem(entity.wire_entries())
        for key, value in limits.items():
            if key not in QUOTA_KEYS:
                raise ConfigError(f"there is no quota {key}; there are {', '.join(QUOTA_KEYS)}")
            if value is not None:
                problem = problem or quota_problem(kinds, key, value)
        if problem:
            raise ConfigError(problem)
        cluster = self._running().cluster

        def alter() -> None:
            for key in {**cluster.quotas.get(entity, {}), **limits}:
                cluster.set_quota(entity, key, limits.get(key))
            save(cluster)

        self._call(alter)

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
