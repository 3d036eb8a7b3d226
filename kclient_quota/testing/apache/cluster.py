"""`ApacheKafka`: a KRaft cluster of real brokers as a context manager."""

import atexit
import base64
import queue
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import urllib.error
import urllib.request
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from kclient_quota.clock import SYSTEM_CLOCK, monotonic, sleep
from kclient_quota.cluster.quotas import describe_request, read_description
from kclient_quota.errors import ClusterError
from kclient_quota.quota.entity import DEFAULT, ClientQuotaEntity
from kclient_quota.testing.apache import settings
from kclient_quota.testing.apache.artefacts import ApacheKafkaUnavailable, class_path
from kclient_quota.wire.connection import Connection, ConnectionSettings

_START_TIMEOUT_S = 120
_CONTROL_TIMEOUT_S = 30
_QUOTAS_S = 10
_ATTEMPTS = 3


@dataclass(frozen=True)
class ByteSample:
    """One sample (about a second) of a broker's byte-rate sensor.

    Attributes:
        node_id: the broker that recorded it.
        quota_type: "Produce" or "Fetch".
        user: the sanitised user of the metric's tags, or "".
        client_id: the client-id of the metric's tags, or "".
        start_ms: epoch milliseconds at which the sample began.
        value: bytes recorded in it.
    """

    node_id: int
    quota_type: str
    user: str
    client_id: str
    start_ms: int
    value: float


class ApacheKafka:
    """Real Apache Kafka brokers on loopback, all in one JVM that ends with this process.

    Example:
        with ApacheKafka(topics={"orders": 4}) as cluster:
            cluster.set_quota(client_id="orders", producer_byte_rate=51_200)

    Args:
        brokers: how many brokers; the first is the controller as well.
        topics: names of topics to create at the start and their partitions.
        properties: broker settings, over the harness's own.
        users: names and passwords; adds a SASL_PLAINTEXT listener for PLAIN and SCRAM, see `sasl_bootstrap_servers`.
        tls_pem: a PEM file with certificate chain and PKCS #8 key; adds a TLS listener, see `tls_bootstrap_servers`.
        heap_mb: largest heap of the JVM.
        advertised_ports: of proxies, one per broker, which clients are told in place of the brokers' own ports; brokers
            talk to each other directly. `client_ports` is where the proxies have to lead.

    Raises:
        ApacheKafkaUnavailable: on entering, when Java or Maven is missing or the brokers do not start.
    """

    def __init__(
        self,
        *,
        brokers: int = 1,
        topics: Mapping[str, int] | None = None,
        properties: Mapping[str, str] | None = None,
        users: Mapping[str, str] | None = None,
        tls_pem: Path | None = None,
        heap_mb: int = 768,
        advertised_ports: Sequence[int] = (),
    ) -> None:
        self._brokers = brokers
        self._topics = dict(topics or {})
        self._properties = dict(properties or {})
        self._users = dict(users or {})
        self._tls_pem = tls_pem
        self._heap_mb = heap_mb
        self._advertised_ports = list(advertised_ports)
        self._layouts: list[settings.Layout] = []
        self._process: subprocess.Popen[str] | None = None
        self._folder: Path | None = None
        self._control = ""
        self._cluster_id = ""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def bootstrap_servers(self) -> str:
        """Addresses of the plain-text listeners, as clients are told them."""
        return ",".join(f"127.0.0.1:{layout.advertised_port or layout.plain_port}" for layout in self._layouts)

    @property
    def client_ports(self) -> list[int]:
        """Where the brokers themselves listen for those who come by the advertised ports."""
        return [layout.client_port for layout in self._layouts]

    @property
    def sasl_bootstrap_servers(self) -> str:
        """Addresses of the SASL_PLAINTEXT listeners; only with `users`."""
        return ",".join(f"127.0.0.1:{layout.sasl_port}" for layout in self._layouts)

    @property
    def tls_bootstrap_servers(self) -> str:
        """Addresses of the TLS listeners; only with `tls_pem`."""
        return ",".join(f"127.0.0.1:{layout.tls_port}" for layout in self._layouts)

    @property
    def process_id(self) -> int:
        """The JVM's process id, to measure its CPU time."""
        return self._running().pid

    def start(self) -> None:
        """Starts the brokers and waits until they answer; about 3 s, once the artefacts are fetched."""
        if self._process is not None:
            raise ClusterError("Apache Kafka is already running: stop() it first")
        classes = class_path()
        atexit.register(self.stop)
        try:
            self._launch_with_retries(classes)
            for user, password in self._users.items():
                self._ask("scram", {"user": user, "password": password})
            for name, partitions in self._topics.items():
                self.create_topic(name, partitions)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Kills the brokers and removes their data; may be called again."""
        atexit.unregister(self.stop)
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    stream.close()
        folder, self._folder = self._folder, None
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)

    def create_topic(
        self, name: str, partitions: int = 1, configs: Mapping[str, str] | None = None, *, replication: int = 1
    ) -> None:
        """Creates a topic and returns when the controller has it.

        Raises:
            ClusterError: with Kafka's own words, for instance that the topic exists.
        """
        request = {"name": name, "partitions": str(partitions), "replication": str(replication)}
        request |= {f"config.{key}": value for key, value in (configs or {}).items()}
        self._ask("topic", request)

    def set_quota(
        self,
        *,
        client_id: str | None = None,
        user: str | None = None,
        default_client_id: bool = False,
        default_user: bool = False,
        producer_byte_rate: float | None = None,
        consumer_byte_rate: float | None = None,
        request_percentage: float | None = None,
        controller_mutation_rate: float | None = None,
    ) -> None:
        """Sets the quotas of one entity, removing those that are None, and waits until the brokers' images have them.

        Raises:
            ClusterError: with Kafka's own words when the change is refused.
        """
        named = {"client-id": client_id, "user": user}
        defaults = {"client-id": default_client_id, "user": default_user}
        given = {kind: name for kind, name in named.items() if name is not None}
        request = {f"entity.{kind}": name for kind, name in given.items()}
        request |= {f"default.{kind}": "true" for kind, wanted in defaults.items() if wanted}
        values = {
            "producer_byte_rate": producer_byte_rate,
            "consumer_byte_rate": consumer_byte_rate,
            "request_percentage": request_percentage,
            "controller_mutation_rate": controller_mutation_rate,
        }
        request |= {f"value.{key}": "" if value is None else repr(float(value)) for key, value in values.items()}
        self._ask("quota", request)
        if len(self._layouts) > 1:
            entity = ClientQuotaEntity({**{kind: DEFAULT for kind, wanted in defaults.items() if wanted}, **given})
            for layout in self._layouts:
                _await_quotas(layout.plain_port, entity, values)

    def byte_samples(self) -> list[ByteSample]:
        """Every sample of the byte-rate sensors since the start: what the brokers hold against quotas, in bytes."""
        samples = []
        for line in self._ask("bytes", {}).splitlines():
            node, quota_type, user, client_id, start, value = line.split("\t")
            samples.append(ByteSample(int(node), quota_type, user, client_id, int(start), float(value)))
        return samples

    def metrics(self) -> dict[tuple[int, str, str, str], float]:
        """Every numeric metric of the brokers by (node id, group, name, "tag=value,…")."""
        found = {}
        for line in self._ask("metrics", {}).splitlines():
            node, group, name, tags, value = line.split("\t", 4)
            try:
                found[int(node), group, name, tags] = float(value)
            except ValueError:  # a few metrics are words
                continue
        return found

    def partition_folder(self, node_id: int, topic: str, partition: int) -> Path:
        """Where a broker keeps the log segments of a partition."""
        if self._folder is None:
            raise ClusterError("Apache Kafka is not running: use it as a context manager, or start() it")
        return self._folder / f"broker-{node_id}" / f"{topic}-{partition}"

    def stop_broker(self, node_id: int) -> None:
        """Shuts one broker down; its data stays."""
        self._ask("stop", {"node": str(node_id)})

    def start_broker(self, node_id: int) -> None:
        """Starts a broker that was shut down, on its old ports and data."""
        self._ask("start", {"node": str(node_id)})

    def _launch_with_retries(self, classes: str) -> None:
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                self._launch(classes)
            except ApacheKafkaUnavailable:
                # a port that was free may be taken by somebody else before Kafka binds it
                if attempt == _ATTEMPTS:
                    raise
                self.stop()
            else:
                return

    def _launch(self, classes: str) -> None:
        self._folder = folder = Path(tempfile.mkdtemp(prefix="apache-kafka-"))
        self._layouts = settings.layouts(
            self._brokers,
            _free_ports,
            sasl=bool(self._users),
            tls=self._tls_pem is not None,
            advertised=self._advertised_ports,
        )
        files = []
        for layout in self._layouts:
            lines = settings.broker_properties(layout, self._layouts, folder, self._users, self._tls_pem)
            file = folder / f"broker-{layout.node_id}.properties"
            file.write_text(settings.render({**lines, **self._properties}))
            files.append(str(file))
        self._cluster_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        self._run(classes, files)

    def _run(self, classes: str, files: Sequence[str]) -> None:
        """Start what the property files say."""
        folder = Path(files[0]).parent
        self._process = self._jvm(classes, files)
        self._control = f"http://127.0.0.1:{self._await_ready(folder)}"

    def _jvm(self, classes: str, files: Sequence[str]) -> subprocess.Popen[str]:
        folder = Path(files[0]).parent
        memory = ["-Xms128m", f"-Xmx{self._heap_mb}m", "-XX:+UseG1GC"]
        arguments = [self._cluster_id, str(folder), sys.executable, *files]
        with (folder / "stderr.txt").open("a") as errors:
            return subprocess.Popen(  # noqa: S603 - Java from the path, our own arguments
                ["java", *memory, "-cp", classes, "Brokers", *arguments],  # noqa: S607 - as above
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                # out of reach of Ctrl-C, and no session: Linux gives one as much of the processors as all of another
                process_group=0,
                cwd=folder,
            )

    def _await_ready(self, folder: Path) -> int:
        process = self._running()
        assert process.stdout is not None
        deadline = monotonic() + _START_TIMEOUT_S
        line = _line_before(process.stdout, deadline)
        if line.startswith("READY "):
            return int(line.split()[1])
        said = (folder / "stderr.txt").read_text().strip().splitlines() or ["nothing on standard error"]
        raise ApacheKafkaUnavailable(f"Apache Kafka did not start within {_START_TIMEOUT_S} s: {said[0]}")

    def _running(self) -> subprocess.Popen[str]:
        if self._process is None:
            raise ClusterError("Apache Kafka is not running: use it as a context manager, or start() it")
        return self._process

    def _ask(self, verb: str, request: Mapping[str, str]) -> str:
        self._running()
        body = settings.render(request).encode()
        call = urllib.request.Request(f"{self._control}/{verb}", data=body, method="POST")  # noqa: S310 - always http
        try:
            with urllib.request.urlopen(call, timeout=_CONTROL_TIMEOUT_S) as answer:  # noqa: S310 - always http
                return str(answer.read().decode())
        except urllib.error.HTTPError as error:
            with error:
                raise ClusterError(f"Apache Kafka refused {verb}: {error.read().decode()}") from None


def _line_before(stream: IO[str], deadline: float) -> str:
    """The first line of `stream`, or "" when it ends or the deadline (monotonic seconds) passes."""
    found: queue.Queue[str] = queue.Queue()
    threading.Thread(target=lambda: found.put(stream.readline()), daemon=True).start()
    try:
        return found.get(timeout=max(0.0, deadline - monotonic()))
    except queue.Empty:
        return ""


def _await_quotas(port: int, entity: ClientQuotaEntity, values: Mapping[str, float | None]) -> None:
    """Return when the broker on `port` knows these quotas, or will not tell: brokers learn of a change one by one."""
    deadline = monotonic() + _QUOTAS_S
    try:
        with Connection(ConnectionSettings("127.0.0.1", port), SYSTEM_CLOCK) as connection:
            while monotonic() < deadline:
                found = dict(read_description(connection.send(describe_request([])))).get(entity, {})
                if all(found.get(key) == value for key, value in values.items()):
                    return
                sleep(0.005)
    except ClusterError:
        # stopped, or not allowed to tell
        return
    raise ClusterError(f"a broker did not learn of the quotas of {entity} within {_QUOTAS_S} s")


def _free_ports(count: int) -> list[int]:
    """Ports that were free a moment ago, all different."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for candidate in sockets:
            candidate.bind(("127.0.0.1", 0))
        return [candidate.getsockname()[1] for candidate in sockets]
    finally:
        for candidate in sockets:
            candidate.close()
