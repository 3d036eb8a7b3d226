"""Strangers' suites: where each comes from, what it needs, how it is run. None of their code is kept here."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.peers.brokers import Addresses, Furniture
from tests.peers.outcomes import Outcomes, of_go, of_pytest
from tests.peers.tools import run_tools
from tests.peers.toxiproxy import proxies

KAFKA = "4.3.1"


@dataclass(frozen=True)
class Suite:
    """One stranger.

    Attributes:
        name: as the table has it.
        version: of its release.
        furniture: what the brokers must be like.
        prepare: fetch and build it in a folder, once.
        run: run it there; the second folder is for what it writes.
        patience_s: when it is ended, whatever it does.
    """

    name: str
    version: str
    furniture: Furniture
    prepare: Callable[[Path], None]
    run: Callable[[Path, Path, Addresses, int], Outcomes]
    patience_s: int


def call(command: list[str], folder: Path, log: Path, patience_s: int, **environment: str) -> str:
    """Run to its end, or until patience is over; what it said, which `log` has as well."""
    with log.open("w+") as said:
        process = subprocess.Popen(
            command, cwd=folder, env={**os.environ, **environment}, stdout=said, stderr=subprocess.STDOUT
        )
        try:
            process.wait(patience_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        said.seek(0)
        return said.read()


def built(command: list[str], folder: Path, **environment: str) -> None:
    """Run what must work.

    Raises:
        SystemExit: it does not.
    """
    log = folder / "prepare.log"
    with log.open("a") as said:
        done = subprocess.run(
            command,
            cwd=folder,
            env={**os.environ, **environment},
            stdout=said,
            stderr=subprocess.STDOUT,
            check=False,
        )
    if done.returncode:
        sys.exit(f"{' '.join(command)} failed: see {log}")


# -- Go


def go_module(path: str, version: str, package: str = ".", *flags: str) -> Callable[[Path], None]:
    """Fetch a module with Go's own client and compile a package's tests."""

    def prepare(folder: Path) -> None:
        built(["go", "mod", "download", f"{path}@{version}"], folder)
        cache = Path(subprocess.check_output(["go", "env", "GOMODCACHE"], text=True).strip())
        escaped = re.sub("[A-Z]", lambda letter: f"!{letter[0].lower()}", path)
        source = folder / "source"
        shutil.copytree(cache / f"{escaped}@{version}", source)
        for entry in (source, *source.rglob("*")):
            entry.chmod(entry.stat().st_mode | 0o200)
        built(["go", "test", "-c", *flags, "-o", str(folder / "suite.test"), package], source, GOFLAGS="-mod=mod")

    return prepare


def go_test(folder: Path, package: str, log: Path, patience_s: int, *flags: str, **environment: str) -> Outcomes:
    """Run what `go_module` has compiled, where its package is."""
    command = ["go", "tool", "test2json", str(folder / "suite.test"), "-test.v", f"-test.timeout={patience_s - 10}s"]
    return of_go(call([*command, *flags], folder / "source" / package, log, patience_s, **environment))


def _kgo(folder: Path, results: Path, addresses: Addresses, patience_s: int) -> Outcomes:
    return go_test(
        folder,
        "pkg/kgo",
        results / "kgo.log",
        patience_s,
        KGO_SEEDS=addresses.plain[0],
        KGO_TEST_RF="1",
        KGO_TEST_RECORDS="20000",
        KGO_LOG_LEVEL="none",
        KGO_TEST_SCRAM_SEEDS=addresses.sasl[0],
        KGO_TEST_SCRAM="admin:admin-secret",
    )


def _kafka_go(folder: Path, results: Path, addresses: Addresses, patience_s: int) -> Outcomes:
    # its addresses stand in its tests
    for file in (folder / "source").glob("*_test.go"):
        original = file.with_suffix(".go.original")
        if not original.exists():
            original.write_bytes(file.read_bytes())
        text = original.read_text()
        for port, address in ((9092, addresses.plain[0]), (9093, addresses.sasl[0])):
            text = text.replace('TCP("localhost")', f'TCP("{address}")')
            text = re.sub(rf"(localhost|127\.0\.0\.1):{port}", address.replace("localhost", "127.0.0.1"), text)
        file.write_text(text)
    built(["go", "test", "-c", "-o", str(folder / "suite.test"), "."], folder / "source", GOFLAGS="-mod=mod")
    return go_test(
        folder,
        ".",
        results / "kafka-go.log",
        patience_s,
        # its own code panics there, whatever the broker, and takes all that follows with it
        "-test.skip=TestReaderConsumerGroup/consumer_group_commits_on_close",
        KAFKA_VERSION="4.0.0",
        KAFKA_SKIP_NETTEST="1",
    )


def _sarama(folder: Path, results: Path, addresses: Addresses, patience_s: int) -> Outcomes:
    with proxies(folder, addresses.proxies) as control:
        return go_test(
            folder,
            ".",
            results / "sarama.log",
            patience_s,
            # it sends on a channel that it has closed, whatever the broker
            "-test.skip=TestConsumerFetchFollowerFailover",
            TOXIPROXY_ADDR=control,
            KAFKA_VERSION=KAFKA,
        )


# -- Python


_NO_SERVICE = """
class ExternalService:
    def __init__(self, *where):
        self.open = self.close = self.dump_logs = self.wait_for = lambda *args, **more: None


SpawnedService = object
"""


def _kafka_python_source(folder: Path) -> None:
    wanted = ["--no-deps", "--no-binary", ":all:", "kafka-python==3.0.12"]
    built([sys.executable, "-m", "pip", "download", "--quiet", *wanted], folder)
    with tarfile.open(next(folder.glob("*.tar.gz"))) as archive:
        archive.extractall(folder, filter="data")
    tests = next(folder.glob("kafka_python-*/test"))
    tests.rename(folder / "test")
    (folder / "test" / "__init__.py").touch()
    # left out of the sdist; there is nothing to be started where there is a broker already
    (folder / "test" / "service.py").write_text(_NO_SERVICE)
    (folder / "servers" / KAFKA / "kafka-bin").mkdir(parents=True)


def _kafka_python(folder: Path, results: Path, addresses: Addresses, patience_s: int) -> Outcomes:
    report = results / "kafka-python.xml"
    options = ["-p", "no:cacheprovider", "-q", "--tb=short", "--timeout=120", f"--junit-xml={report}"]
    call(
        [sys.executable, "-m", "pytest", "-c", "/dev/null", "--rootdir", str(folder), *options, "test/integration"],
        folder,
        results / "kafka-python.log",
        patience_s,
        KAFKA_URI=f"kafka://{addresses.plain[0]}",
        KAFKA_VERSION=KAFKA,
        PYTHONPATH=str(folder),
    )
    return of_pytest(report)


def _aiokafka_source(folder: Path) -> None:
    # its sdist has no tests
    source = folder / "source"
    if not source.exists():
        address = "https://github.com/aio-libs/aiokafka"
        built(["git", "clone", "--quiet", "--depth=1", "--branch=v0.14.0", address, str(source)], folder)
    shutil.copytree(source / "tests", folder / "tests")
    shutil.copy(Path(__file__).parent / "aiokafka_conftest.py", folder / "tests" / "conftest.py")


def _aiokafka(folder: Path, results: Path, addresses: Addresses, patience_s: int) -> Outcomes:
    report = results / "aiokafka.xml"
    left_out = [f"--ignore=tests/{name}" for name in ("test_sasl.py", "test_helpers.py", "coordinator", "record")]
    options = [
        "-p",
        "no:cacheprovider",
        "-q",
        "--tb=short",
        "--timeout=120",
        f"--junit-xml={report}",
        "-o",
        "asyncio_mode=auto",
    ]
    call(
        [sys.executable, "-m", "pytest", "-c", "/dev/null", "--rootdir", str(folder), *options, *left_out, "tests"],
        folder,
        results / "aiokafka.log",
        patience_s,
        AIOKAFKA_BROKER=addresses.plain[0],
        KAFKA_VERSION=KAFKA,
    )
    return of_pytest(report)


# -- all of them

_AUTO = {"auto.create.topics.enable": "true"}
_AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:adminscram256;User:adminscram512;User:adminplain;User:ANONYMOUS",
    "allow.everyone.if.no.acl.found": "true",
}
_USERS = {"adminscram256": "admin-secret-256", "adminscram512": "admin-secret-512", "adminplain": "admin-secret"}

SUITES = {
    suite.name: suite
    for suite in (
        Suite(
            "franz-go kgo",
            "1.22.2",
            Furniture(users={"admin": "admin-secret"}),
            go_module("github.com/twmb/franz-go", "v1.22.2", "./pkg/kgo"),
            _kgo,
            900,
        ),
        Suite(
            "kafka-go",
            "0.4.51",
            Furniture(
                properties={**_AUTO, **_AUTHORIZER, "message.max.bytes": "200000000"},
                users=_USERS,
            ),
            go_module("github.com/segmentio/kafka-go", "v0.4.51"),
            _kafka_go,
            900,
        ),
        Suite(
            "sarama",
            "1.61.1",
            Furniture(
                brokers=5,
                properties={
                    "default.replication.factor": "3",
                    "auto.create.topics.enable": "false",
                },
                # where its tests expect them
                proxy_ports=(29091, 29092, 29093, 29094, 29095),
            ),
            go_module("github.com/IBM/sarama", "v1.61.1", ".", "-tags=functional"),
            _sarama,
            900,
        ),
        Suite(
            "kafka-python",
            "3.0.12",
            Furniture(properties={**_AUTO, "num.partitions": "4"}),
            _kafka_python_source,
            _kafka_python,
            900,
        ),
        Suite(
            "aiokafka",
            "0.14.0",
            Furniture(properties={**_AUTO, "num.partitions": "2"}),
            _aiokafka_source,
            _aiokafka,
            1200,
        ),
        Suite("Kafka's own tools", KAFKA, Furniture(brokers=3), lambda _: None, run_tools, 900),
    )
}
