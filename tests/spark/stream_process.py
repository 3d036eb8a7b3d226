"""A stream in a group of processes of its own, which is stopped, looked at and killed while it works."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

DRIVER = Path(__file__).with_name("recovery_driver.py")


def started(arguments: list[str], log: Path, **environment: str) -> subprocess.Popen[bytes]:
    """The driver, whose words go to `log`."""
    path = os.pathsep.join(filter(None, sys.path))
    with log.open("wb") as said:
        return subprocess.Popen(
            [sys.executable, str(DRIVER), *arguments],
            stdout=said,
            stderr=subprocess.STDOUT,
            process_group=0,
            env={**os.environ, "PYTHONPATH": path, **environment},
        )


def kill(process: subprocess.Popen[bytes]) -> None:
    """Driver and JVM at once; Python workers see their JVM gone and end by themselves."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(60)


def numbers(folder: Path) -> set[int]:
    """Of the batches that a checkpoint's folder has."""
    return {int(path.name) for path in folder.iterdir() if path.name.isdigit()} if folder.exists() else set()


def goes_on(process: subprocess.Popen[bytes], log: Path, deadline: float) -> None:
    """Let it work for a moment, also when it was stopped."""
    os.killpg(process.pid, signal.SIGCONT)
    said = log.read_text(errors="replace")[-4_000:]
    assert process.poll() is None, said
    assert time.monotonic() < deadline, said
    time.sleep(0.05)
