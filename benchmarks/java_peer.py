"""Kafka's own Java client beside the others: `JavaPeer.java`, compiled once, run in a JVM of its own."""

import atexit
import functools
import os
import resource
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from benchmarks import payloads, tuning
from benchmarks.arrivals import Arrivals
from benchmarks.ledger import Ledger
from kclient_quota.testing.apache.artefacts import class_path

_SOURCE = Path(__file__).with_name("JavaPeer.java")
_NS = 1e9


_compiling = threading.Lock()


def compiled(source: Path = _SOURCE) -> str:
    """The class path to run it with; compiled the first time, gone with this process."""
    with _compiling:  # several threads want it at once, and it takes two seconds of CPU time
        return _compiled(source)


@functools.cache
def _compiled(source: Path) -> str:
    folder = tempfile.mkdtemp(prefix="java-peer-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    libraries = class_path()
    done = subprocess.run(
        ["javac", "-nowarn", "-proc:none", "-d", folder, "-cp", libraries, str(source)],
        capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    if done.returncode != 0:
        raise RuntimeError(f"{source.name} does not compile: {done.stderr.strip()[:2000]}")
    return f"{folder}{os.pathsep}{libraries}"


def command(verb: str, spec: dict[str, Any]) -> list[str]:
    """The command line; `spec` holds the class path, the rest becomes key=value."""
    arguments = [f"{key}={value}" for key, value in spec.items() if key != "class_path"]
    return ["java", "-cp", spec["class_path"], "JavaPeer", f"verb={verb}", *arguments]


def produce(spec: dict[str, Any], ledger: Ledger) -> dict[str, Any]:
    """Runs the producer and fills the ledger."""
    settings = {"compression.type": spec["compression"], **tuning.java(spec)}
    wanted = {**spec, "keys": payloads.KEYS if spec["partitions"] else 0}
    wanted |= {f"config.{key}": value for key, value in settings.items()}
    with tempfile.TemporaryDirectory(prefix="java-peer-") as folder:
        wanted["bodies"] = Path(folder, "bodies")
        payloads.write(wanted["bodies"], spec["kind"], spec["size"])
        told = _run("produce", wanted)
    _enter(told, ledger)
    return {"given_ms": int(_one(told, "g")), "request_timeouts": None, **_common(told)}


def consume(spec: dict[str, Any], arrivals: Arrivals) -> dict[str, Any]:
    """Runs the consumer and enters what arrived."""
    told = _run("consume", spec)
    for kind, *fields in told:
        if kind == "r":
            at_ms, partition, message_id, length = map(int, fields)
            if at_ms <= arrivals.end_ms:  # its own run began when the JVM did
                arrivals.enter(at_ms, partition, message_id, length)
    return {"errors": 0, "rebalances": int(_one(told, "b")), **_common(told)}


def loop(spec: dict[str, Any], ledger: Ledger) -> dict[str, Any]:
    """Runs the consume-transform-produce loop and fills the ledger."""
    told = _run("loop", spec)
    _enter(told, ledger)
    return {"rebalances": int(_one(told, "b")), **_common(told)}


def _run(verb: str, spec: dict[str, Any]) -> list[list[str]]:
    """What it wrote, line by line, in words. It ends by itself, or when this process does."""
    with tempfile.TemporaryDirectory(prefix="java-peer-") as folder:
        out = Path(folder, "told")
        with subprocess.Popen(
            command(verb, {**spec, "out": out}),
            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        ) as process:  # fmt: skip
            assert process.stderr is not None
            said = process.stderr.read()
        if process.returncode != 0 or not out.exists():
            raise RuntimeError(f"JavaPeer {verb} ended with status {process.returncode}: {said.strip()[-2000:]}")
        return [line.split() for line in out.read_text().splitlines()]


def _common(told: Iterable[list[str]]) -> dict[str, Any]:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {"longest_throttle_ms": float(_one(told, "t")), "cpu_s": used.ru_utime + used.ru_stime}


def _enter(told: Iterable[list[str]], ledger: Ledger) -> None:
    for kind, *fields in told:
        if kind == "m":
            handed, reported, error = int(fields[0]), int(fields[1]), fields[2]
            message_id = ledger.next_id()
            if handed >= 0:
                ledger.handed_over[message_id] = handed / _NS
            if reported >= 0:
                ledger.report(message_id, None if error == "-" else error, reported / _NS)


def _one(told: Iterable[list[str]], kind: str) -> str:
    return next(fields[1] for fields in told if fields[0] == kind)
