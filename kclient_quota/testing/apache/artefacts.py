"""Fetches Apache Kafka's jars once into the user's cache and compiles the small harness beside them."""

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from importlib import resources
from pathlib import Path

from kclient_quota.errors import KclientQuotaError

KAFKA_VERSION = "4.3.1"
_COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"
_FETCH_TIMEOUT_S = 600


class ApacheKafkaUnavailable(KclientQuotaError):  # noqa: N818 - the name says what it is; it reads as a state
    """Apache Kafka cannot be run here; the message names what is missing."""


def apache_kafka_unavailable_reason() -> str | None:
    """Why `ApacheKafka` cannot start here, in one line, or None when its tools are present."""
    cached = (_cache() / "libs").is_dir() and _classes().is_dir()
    needed = ("java",) if cached else ("java", "javac", "mvn")
    missing = [tool for tool in needed if shutil.which(tool) is None]
    if not missing:
        return None
    return f"Apache Kafka {KAFKA_VERSION} needs {', '.join(missing)} on the path (a JDK, 17 or newer, and Maven)"


def class_path() -> str:
    """The class path to run `Brokers` with; fetches and compiles what is not in the cache yet.

    Raises:
        ApacheKafkaUnavailable: a tool is missing, or the artefacts could not be fetched or compiled.
    """
    reason = apache_kafka_unavailable_reason()
    if reason is not None:
        raise ApacheKafkaUnavailable(reason)
    libs = _cache() / "libs"
    if not libs.is_dir():
        _build(libs, _fetch)
    classes = _classes()
    if not classes.is_dir():
        _build(classes, _compile)
    return f"{classes}{os.pathsep}{libs / '*'}"


def _cache() -> Path:
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "kclient-quota" / f"apache-kafka-{KAFKA_VERSION}"


def _sources() -> dict[str, bytes]:
    folder = resources.files("kclient_quota.testing.apache")
    return {entry.name: entry.read_bytes() for entry in folder.iterdir() if entry.name.endswith(".java")}


def _classes() -> Path:
    digest = hashlib.sha256()
    for name, text in sorted(_sources().items()):
        digest.update(name.encode() + b"\0" + text)
    return _cache() / f"harness-{digest.hexdigest()[:16]}"


def _build(target: Path, build: Callable[[Path, Path], None]) -> None:
    """Builds into a scratch directory and renames it, so that the cache only ever holds whole directories."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".building-") as scratch:
        made = Path(scratch) / "made"
        made.mkdir()
        build(made, Path(scratch))
        try:
            made.rename(target)
        except OSError:
            # another process was first; what it made is the same
            if not target.is_dir():
                raise


def _fetch(made: Path, scratch: Path) -> None:
    pom = scratch / "pom.xml"
    pom.write_bytes(resources.files("kclient_quota.testing.apache").joinpath("pom.xml").read_bytes())
    _run(
        ["mvn", "-q", "-B", "-f", str(pom), _COPY, f"-DoutputDirectory={made}", "-DincludeScope=runtime"],
        f"fetching Apache Kafka {KAFKA_VERSION} with Maven failed; check Maven's settings and the network",
    )


def _compile(made: Path, scratch: Path) -> None:
    files = []
    for name, text in _sources().items():
        path = scratch / name
        path.write_bytes(text)
        files.append(str(path))
    _run(
        ["javac", "-nowarn", "-proc:none", "-d", str(made), "-cp", str(_cache() / "libs" / "*"), *files],
        "compiling the Apache Kafka harness failed; a JDK 17 or newer is needed",
    )


def _run(command: list[str], failure: str) -> None:
    try:
        subprocess.run(  # noqa: S603 - fixed tools, our own arguments
            command, check=True, capture_output=True, text=True, timeout=_FETCH_TIMEOUT_S, stdin=subprocess.DEVNULL
        )
    except subprocess.CalledProcessError as error:
        lines = (error.stdout + error.stderr).strip().splitlines() or [f"exit code {error.returncode}"]
        first = next((line for line in lines if "rror" in line), lines[0])
        raise ApacheKafkaUnavailable(f"{failure}: {first.strip()}") from error
    except subprocess.TimeoutExpired as error:
        raise ApacheKafkaUnavailable(f"{failure}: no end after {_FETCH_TIMEOUT_S} s") from error
