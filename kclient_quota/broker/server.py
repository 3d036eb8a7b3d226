"""`EmbeddedBroker`: a quota-enforcing Kafka cluster inside this process, on loopback, in one background thread."""

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from kclient_quota.broker.configs import eligible_replicas
from kclient_quota.broker.configs.broker_properties import BrokerProperties
from kclient_quota.broker.control_panel import ControlPanel
from kclient_quota.broker.manners import KAFKA, ThrottleManner, manner_of
from kclient_quota.broker.network.endpoints import (
    PLAINTEXT,
    SASL_PLAINTEXT,
    SSL,
    address_of,
    listener_specs,
    spread_ports,
)
from kclient_quota.broker.network.listener import is_no_address
from kclient_quota.broker.network.loop_scheduler import BrokerLoop, LoopScheduler
from kclient_quota.broker.runtime import Runtime
from kclient_quota.broker.security.bearer_tokens import TokenRules
from kclient_quota.broker.storage.cluster_storage import ClusterStorage, no_room
from kclient_quota.broker.storage.fsync import Fsync
from kclient_quota.clock import SYSTEM_CLOCK, Clock
from kclient_quota.errors import ClusterError, ConfigError
from kclient_quota.quota.callback import ClientQuotaCallback
from kclient_quota.quota.throttle import ThrottleRule

if TYPE_CHECKING:
    from kclient_telemetry.receiver.fanout import FanOut, TelemetrySink
    from kclient_telemetry.receiver.plugin import ClientTelemetryExporter

ResultT = TypeVar("ResultT")

_ANSWER_TIMEOUT_S = 30
_EXPORT_TIMEOUT_MS = 2_000


class EmbeddedBroker(ControlPanel):
    """Kafka brokers on loopback, started in milliseconds, gone when closed.

    Example:
        with EmbeddedBroker(brokers=3, topics={"orders": 4}) as cluster:
            cluster.set_quota(client_id="orders", producer_byte_rate=51_200)
            producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})

    Args:
        brokers: how many brokers; their ids are 1, 2, ...
        topics: names of topics to create at the start and their partitions.
        ports: of the PLAINTEXT listeners: 0 for free ones, a number for the first broker (the others follow it), or
            one per broker.
        host: address to listen on, IPv4 or IPv6; loopback unless told otherwise.
        advertised_host: what clients are told to connect to (Kafka: `advertised.listeners`); None for `host`, or for
            "localhost" where that means every address ("0.0.0.0", "::").
        listeners: serve these only, such as ("SASL_SSL",): what is secured has no way around it. None serves PLAINTEXT
            and every listener that `users`, `oauth` and `tls_pem` make possible.
        clock: time for quotas, waits and timestamps; a clock that is moved by hand moves throttles.
        properties: Kafka's broker configuration by its own keys, such as `quota.window.num`,
            `quota.window.size.seconds`, `auto.create.topics.enable`, `num.partitions`, `log.retention.bytes`.
        users: names and passwords; adds a SASL_PLAINTEXT listener (PLAIN, SCRAM-SHA-256, SCRAM-SHA-512).
        tls_pem: a PEM file with certificate chain and PKCS #8 key; adds an SSL listener, with `users` a SASL_SSL one
            as well.
        tls_client_ca: a PEM file: the SSL listener demands certificates that these authorities have signed, and the
            subject is the user's name (`CN=alice,O=Example`).
        oauth: which bearer tokens are taken; adds OAUTHBEARER to the SASL listeners.
        tls_ports: as `ports`, of the SSL listeners, or of SASL_SSL where `listeners` names no SSL.
        sasl_ports: as `ports`, of the SASL_PLAINTEXT listeners.
        quota_callback: decides limits in place of Kafka's eight levels (KIP-257).
        throttle_rule: Kafka's, or the draft of KIP-124.
        metrics_port: serve a Prometheus page there, see `metrics_url`, of brokers' metrics and of what clients push; 0
            picks a free port, None serves none. Needs the extra `prometheus`.
        data_dir: keep topics, records, committed offsets, transactions, quotas and configurations there across
            restarts.
        fsync: when the disk itself must have what was acknowledged, so that even a power cut does not cost it: "always"
            (before the acknowledgement), a number of milliseconds (at least this often), or "close" (in the system's
            own time, and when the broker closes; Kafka's default). The end of the process alone never costs anything.
        manner: whose brokers to throttle like: "kafka", "redpanda", "event-hubs", "managed" (Kafka whose provider
            keeps quotas from clients), or one of your own; see `kclient_quota.broker.manners`.
        exporters: take every telemetry push (KIP-714) on: sinks of `kclient_telemetry.receiver`, closed with the
            broker, or plug-ins in the form of KIP-1217.

    Raises:
        ConfigError: an argument cannot be used; the message names it.
    """

    def __init__(
        self,
        *,
        brokers: int = 1,
        topics: Mapping[str, int] | None = None,
        ports: int | Sequence[int] = 0,
        host: str = "127.0.0.1",
        advertised_host: str | None = None,
        listeners: Sequence[str] | None = None,
        clock: Clock = SYSTEM_CLOCK,
        properties: Mapping[str, str] | None = None,
        users: Mapping[str, str] | None = None,
        tls_pem: Path | None = None,
        tls_client_ca: Path | None = None,
        oauth: TokenRules | None = None,
        tls_ports: int | Sequence[int] = 0,
        sasl_ports: int | Sequence[int] = 0,
        quota_callback: ClientQuotaCallback | None = None,
        throttle_rule: ThrottleRule = ThrottleRule.KAFKA,
        metrics_port: int | None = None,
        data_dir: Path | str | None = None,
        fsync: str | int = "close",
        manner: str | ThrottleManner = KAFKA,
        exporters: "Sequence[TelemetrySink | ClientTelemetryExporter]" = (),
    ) -> None:
        if brokers < 1:
            raise ConfigError(f"brokers must be at least 1, not {brokers}")
        self._ids = range(1, brokers + 1)
        self._topics = dict(topics or {})
        self._host = host
        self._advertised_host = advertised_host
        self._listeners = listeners
        self._clock = clock
        self._manner = manner_of(manner)
        self._properties = BrokerProperties({**self._manner.properties, **(properties or {})})
        self._settings = self._properties.quota_settings(quota_callback, throttle_rule)
        self._users = dict(users or {})
        self._tls_pem = tls_pem
        self._tls_client_ca = tls_client_ca
        self._oauth = oauth
        self._ports = {
            PLAINTEXT: spread_ports("ports", ports, self._ids),
            SSL: spread_ports("tls_ports", tls_ports, self._ids),
            SASL_PLAINTEXT: spread_ports("sasl_ports", sasl_ports, self._ids),
        }
        self._metrics_port = metrics_port
        self._data_dir = None if data_dir is None else Path(data_dir)
        self._fsync = Fsync.of(fsync)
        if data_dir is None and self._fsync != Fsync():
            raise ConfigError(f"fsync={fsync!r} says nothing without data_dir: name a directory, or leave fsync out")
        self._exporters = tuple(exporters)
        self._fan_out: FanOut | None = None
        self._metrics_url: str | None = None
        self._runtime: Runtime | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    # -- life

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.close()
        except Exception as failure:
            if error is None:
                raise
            error.add_note(f"a control function has raised {failure!r} as well")

    def start(self) -> Self:
        """Start the brokers; they answer when this returns.

        Raises:
            ConfigError: an address cannot be listened on, or `data_dir` cannot be used.
        """
        if self._loop is not None:
            return self
        storage = None if self._data_dir is None else ClusterStorage(self._data_dir, self._fsync)
        runtime: Runtime | None = None
        try:
            runtime = self._bind()
            self._prepare(runtime, storage)
        except BaseException as error:
            if runtime is not None:
                runtime.close_sockets()
            if storage is not None:
                storage.close()
            if isinstance(error, OSError):
                raise no_room(error) from error
            raise
        loop = BrokerLoop()
        thread = threading.Thread(target=_run, args=(loop, runtime), name="embedded-broker", daemon=True)
        thread.start()
        self._runtime, self._loop, self._thread = runtime, loop, thread
        try:
            self._await(runtime.start(LoopScheduler(loop, self._clock), storage))
            self._call(lambda: self._properties.apply(runtime.cluster))
            self._call(lambda: eligible_replicas.settle(runtime.cluster))
            self._export_telemetry(self._serve_metrics(runtime))
            for name, partitions in self._topics.items():
                if name not in runtime.cluster.topics:
                    self.create_topic(name, partitions)
            # last: a client that has waited for the port would have a topic made with `num.partitions`, and no ACLs yet
            self._call(runtime.serve)
        except BaseException:
            self.close()
            raise
        return self

    def close(self, export_timeout_ms: int = _EXPORT_TIMEOUT_MS) -> None:
        """Stop everything at once; clients find their connections cut. May be called again.

        Args:
            export_timeout_ms: how long exporters may take to hand on what clients have pushed.

        Raises:
            OSError: the disk of `data_dir` did not take the last that was to be synced.
            Exception: what a control function has raised meanwhile.
        """
        runtime, loop, thread = self._runtime, self._loop, self._thread
        self._runtime = self._loop = self._thread = None
        if runtime is None or loop is None or thread is None:
            return
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        if self._fan_out is not None:
            self._fan_out.close(export_timeout_ms)
        failures, runtime.controls.failures = runtime.controls.failures, []
        if failures:
            raise failures[0]

    def _bind(self) -> Runtime:
        has_users = bool(self._users) or self._oauth is not None
        listeners = listener_specs(
            self._ports,
            has_users=has_users,
            tls_pem=self._tls_pem,
            tls_client_ca=self._tls_client_ca,
            wanted_names=self._listeners,
        )
        try:
            return Runtime(
                self._ids, (self._host, self._advertised_host), listeners, self._settings, self._properties.limits()
            )
        except OSError as error:
            remedy = "name an address of this machine as host" if is_no_address(error) else "choose other ports, or 0"
            raise ConfigError(f"the embedded broker cannot listen: {error}; {remedy}") from error

    def _serve_metrics(self, runtime: Runtime) -> "tuple[TelemetrySink, ...]":
        """Serve the page, if it is wanted; what takes clients' pushes for it."""
        wanted = self._metrics_port
        if wanted is None:
            return ()
        from kclient_telemetry.receiver.prometheus import PrometheusStore  # noqa: PLC0415 - loads protobuf
        from kclient_telemetry.receiver.prometheus_sink import PrometheusSink  # noqa: PLC0415 - as above

        pushed = PrometheusStore()
        try:
            port = self._call(
                lambda: runtime.serve_metrics(wanted, lambda: pushed.families(time.time_ns() // 1_000_000))
            )
        except OSError as error:
            raise ConfigError(f"metrics_port {wanted}: {error}; choose another, or 0") from error
        self._metrics_url = f"http://{address_of(self._host, port)}/metrics"
        return (PrometheusSink(pushed),)

    def _export_telemetry(self, own: "Sequence[TelemetrySink]") -> None:
        if not self._exporters and not own:
            return
        # protobuf is loaded by those who forward telemetry only
        from kclient_telemetry.receiver.fanout import FanOut  # noqa: PLC0415

        self._fan_out = FanOut((*self._exporters, *own))
        self._call(lambda: setattr(self._telemetry(), "exporter", self._fan_out))

    def _prepare(self, runtime: Runtime, storage: ClusterStorage | None) -> None:
        cluster = runtime.cluster
        if storage is not None:
            cluster.cluster_id = storage.cluster_id(cluster.cluster_id)
        cluster.users.update(self._users)
        cluster.tokens = self._oauth
        cluster.manner = self._manner
        self._properties.apply(cluster)

    @property
    def metrics_url(self) -> str:
        """Address of the Prometheus page; only with `metrics_port`.

        Raises:
            ConfigError: none is served.
        """
        if self._metrics_url is None:
            raise ConfigError("no Prometheus page is served: give metrics_port=")
        return self._metrics_url

    # -- whole brokers

    def stop_broker(self, broker_id: int) -> None:
        """Stop one broker; its partitions go to other replicas, or stay without a leader."""
        self._check_id(broker_id)
        self._call(lambda: self._running().stop_broker(broker_id))

    def start_broker(self, broker_id: int) -> None:
        """Start a stopped broker again on its old ports; its quotas are measured anew."""
        self._check_id(broker_id)
        self._call(lambda: self._running().start_broker(broker_id))

    def restart(self, broker_id: int) -> None:
        """Stop a broker and start it again."""
        self.stop_broker(broker_id)
        self.start_broker(broker_id)

    # -- within

    def _check_id(self, broker_id: int) -> None:
        if broker_id not in self._ids:
            raise ConfigError(f"there is no broker {broker_id}; brokers are 1 to {len(self._ids)}")

    def _running(self) -> Runtime:
        if self._runtime is None:
            raise ClusterError("the embedded broker is not running: use it as a context manager, or start() it")
        return self._runtime

    def _call(self, function: Callable[[], ResultT]) -> ResultT:
        """Call on the loop's thread and wait for the result; at once if this is that thread (a control function)."""
        if threading.current_thread() is self._thread:
            return function()

        async def call() -> ResultT:
            result = function()
            await self._running().on_disk()
            return result

        return self._await(call())

    def _await(self, coroutine: Coroutine[Any, Any, ResultT]) -> ResultT:
        loop = self._loop
        if loop is None:
            coroutine.close()
            raise ClusterError("the embedded broker is not running: use it as a context manager, or start() it")
        if self._thread is not None and not self._thread.is_alive():
            coroutine.close()
            raise ClusterError("the embedded broker runs in the process that this one was forked from: call this there")
        if threading.current_thread() is self._thread:
            coroutine.close()
            raise ClusterError(
                "this cannot be waited for within a control function: call it from the test's own thread"
            )
        return asyncio.run_coroutine_threadsafe(coroutine, loop).result(_ANSWER_TIMEOUT_S)


def _run(loop: asyncio.AbstractEventLoop, runtime: Runtime) -> None:
    asyncio.set_event_loop(loop)
    loop.run_forever()
    try:
        loop.run_until_complete(runtime.stop())
    except Exception as error:  # noqa: BLE001 - whatever it is, `close` raises it where it is seen
        runtime.controls.failures.append(error)
    finally:
        loop.close()
