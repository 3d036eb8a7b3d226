"""Apache Kafka with a JVM for each broker, so that one can be killed as the kernel kills."""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from kclient_quota.testing.apache.artefacts import class_path
from kclient_quota.testing.apache.cluster import ApacheKafka

if TYPE_CHECKING:
    import subprocess


class ApacheKafkaApart(ApacheKafka):
    """As `ApacheKafka`, but every broker is a process of its own; the first is the controller as well.

    Example:
        with ApacheKafkaApart(brokers=3) as cluster:
            cluster.kill_broker(2)
            cluster.start_broker(2)
    """

    def kill_broker(self, node_id: int) -> None:
        """SIGKILL: nothing is flushed, no leader is handed over; its data stays."""
        _end(self._jvms[node_id - 1])

    def process_of(self, node_id: int) -> int:
        """The process id of a broker's JVM."""
        return self._jvms[node_id - 1].pid

    def stop_broker(self, node_id: int) -> None:
        """Shut one broker down in order, and end its process."""
        self._control = self._controls[node_id - 1]
        try:
            super().stop_broker(node_id)
        finally:
            self._control = self._controls[0]
        self.kill_broker(node_id)

    def start_broker(self, node_id: int) -> None:
        """Start a broker that was stopped or killed, on its old ports and data."""
        index = node_id - 1
        self._jvms[index] = self._process = self._jvm(class_path(), [self._files[index]])
        self._controls[index] = f"http://127.0.0.1:{self._await_ready(Path(self._files[index]).parent)}"
        self._process, self._control = self._jvms[0], self._controls[0]

    def stop(self) -> None:
        """Kills the brokers and removes their data; may be called again."""
        for process in getattr(self, "_jvms", []):
            _end(process)
        super().stop()

    def _run(self, classes: str, files: Sequence[str]) -> None:
        self._files = list(files)
        self._jvms: list[subprocess.Popen[str]] = []
        self._controls: list[str] = []
        for file in files:
            self._process = self._jvm(classes, [file])
            self._jvms.append(self._process)
            self._controls.append(f"http://127.0.0.1:{self._await_ready(Path(file).parent)}")
        self._process, self._control = self._jvms[0], self._controls[0]


def _end(process: "subprocess.Popen[str]") -> None:
    process.kill()
    process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            with suppress(OSError):  # what was written to it is of no interest any more
                stream.close()
