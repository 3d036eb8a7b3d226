"""Brokers in a process of their own, its size, and what a result says of the machine it was made on."""

import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import confluent_kafka

from kclient_quota import __version__


class Brokers:
    """The other process."""

    def __init__(self, says: int | None = None) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.soak.host"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=says,
            text=True,
        )
        self.servers: str = self._answer()

    def ask(self, verb: str, **arguments: Any) -> dict[str, Any]:
        """Have something done; what the brokers have counted so far."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"verb": verb, **arguments}) + "\n")
        self.process.stdin.flush()
        return self._answer()

    def _answer(self) -> Any:
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def close(self) -> None:
        """End it."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(60)


def size_of(pid: int) -> dict[str, float]:
    """Memory in MB, descriptors and threads of a process."""
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":" in line)
    return {
        "memory_mb": round(int(status["VmRSS"].split()[0]) / 1024, 1),
        "descriptors": len(list(Path(f"/proc/{pid}/fd").iterdir())),
        "threads": int(status["Threads"]),
    }


def versions() -> dict[str, Any]:
    """For the head of a result."""
    commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False).stdout.strip()
    return {
        "commit": commit,
        "versions": {
            "kclient-quota": __version__,
            "confluent-kafka": confluent_kafka.__version__,
            "python": platform.python_version(),
        },
        "cpus": os.cpu_count(),
    }
