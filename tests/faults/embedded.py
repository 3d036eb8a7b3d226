"""Three embedded brokers on disk, in a process that can be stopped, killed, started again, and denied its disk."""

import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from kclient_telemetry.otlp import parse
from kclient_telemetry.receiver.plugin import ClientTelemetryContext, ClientTelemetryPayload

from kclient_quota.broker import EmbeddedBroker
from kclient_quota.testing.proxies import Proxies
from tests.faults.telemetry import INTERVAL_MS, METRICS, delivered_in

BROKERS = 3
PROPERTIES = {"offsets.topic.replication.factor": "3"}
NOTHING_MORE = 1_024
"""No file may grow beyond so many bytes where a disk is full."""


class EmbeddedApart:
    """The process, told by lines of JSON what to do."""

    def __init__(self, proxies: Proxies) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self._proxies = proxies
        self._ports: list[int] = [0] * BROKERS

    def __enter__(self) -> Self:
        self.start_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill_all()
        self._folder.cleanup()

    @property
    def bootstrap_servers(self) -> str:
        """The proxies' addresses."""
        return self._proxies.bootstrap_servers

    @property
    def processes(self) -> list[int]:
        """The one that is all brokers."""
        return [self._process.pid]

    def start_all(self) -> None:
        """Start, or start again on the old ports and data."""
        self._folder_of("pushes").mkdir(exist_ok=True)
        command = [sys.executable, "-m", "tests.faults.embedded", self._folder.name]
        told = {"ports": self._ports, "advertised": self._proxies.ports}
        self._process = subprocess.Popen(
            [*command, json.dumps(told)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._ports = self._answer()
        for node_id, port in enumerate(self._ports, start=1):
            self._proxies[node_id].lead_to(port)

    def kill_all(self) -> None:
        """SIGKILL: nothing is flushed; the data stays."""
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            stream.close()

    def create_topic(self, name: str, partitions: int, *, replication: int) -> None:
        self._ask("create_topic", name=name, partitions=partitions, replication=replication)

    def set_quota(self, **quota: Any) -> None:
        self._ask("set_quota", **quota)

    def stop_broker(self, broker_id: int) -> None:
        self._ask("stop_broker", broker_id=broker_id)

    def start_broker(self, broker_id: int) -> None:
        self._ask("start_broker", broker_id=broker_id)

    def fill_disk(self) -> None:
        """Let the disk take nothing more."""
        self._ask("limit", size=NOTHING_MORE)

    def free_disk(self) -> None:
        """As it was."""
        self._ask("limit", size=resource.RLIM_INFINITY)

    def told_by(self, client_id: str) -> list[tuple[int, int]]:
        """What each push told of deliveries that was taken."""
        texts = [file.read_text().split() for file in self._folder_of("pushes").glob(f"*,{client_id}")]
        return [(int(began), int(value)) for began, value in texts]

    def _folder_of(self, what: str) -> Path:
        return Path(self._folder.name) / what

    def _ask(self, verb: str, **arguments: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"verb": verb, **arguments}) + "\n")
        self._process.stdin.flush()
        if (error := self._answer()) is not None:
            raise AssertionError(error)

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        return json.loads(self._process.stdout.readline())


class Kept:
    """Writes what every push tells to a file that outlives the process, as `TelemetryReceiver.java` does."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def export_metrics(self, context: ClientTelemetryContext, payload: ClientTelemetryPayload) -> None:
        name = f"{time.time_ns()},{context.authorizable_request_context.client_id}"
        began, value = delivered_in(parse(payload.data))
        (self._folder / name).write_text(f"{began} {value}")


def main() -> None:
    """Serve until standard input ends."""
    folder, told = Path(sys.argv[1]), json.loads(sys.argv[2])
    settings = {"brokers": BROKERS, "ports": told["ports"], "properties": PROPERTIES}
    with EmbeddedBroker(**settings, data_dir=folder / "data", exporters=[Kept(folder / "pushes")]) as cluster:
        own = [int(address.rpartition(":")[2]) for address in cluster.bootstrap_servers.split(",")]
        for broker_id, port in enumerate(told["advertised"], start=1):
            cluster.advertise(broker_id, port)
        cluster.set_client_metrics("all", metrics=METRICS, interval_ms=INTERVAL_MS)
        print(json.dumps(own), flush=True)
        for line in sys.stdin:
            asked = json.loads(line)
            verb = asked.pop("verb")
            said = None
            try:
                if verb == "limit":
                    resource.setrlimit(resource.RLIMIT_FSIZE, (asked["size"], resource.RLIM_INFINITY))
                else:
                    getattr(cluster, verb)(**asked)
            except Exception as error:  # noqa: BLE001 - told to whoever asked
                said = f"{verb}: {error!r}"
            print(json.dumps(said), flush=True)


if __name__ == "__main__":
    main()
