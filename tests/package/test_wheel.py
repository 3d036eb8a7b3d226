"""The wheel, installed alone: it has all that it needs, and what it does not need is not asked for."""

import json
import os
import re
import signal
import subprocess
import sys
import venv
from pathlib import Path

import confluent_kafka
import pytest

ROOT = Path(__file__).parents[2]
ROUND = """
import sys
from kclient_quota import Consumer, Producer
from kclient_quota.broker import EmbeddedBroker
assert "site-packages" in sys.modules["kclient_quota"].__file__
with EmbeddedBroker(topics={"orders": 1}) as broker:
    conf = {"bootstrap.servers": broker.bootstrap_servers, "client.id": "app"}
    broker.set_quota(client_id="app", producer_byte_rate=100_000)
    with Producer(conf) as producer:
        producer.produce("orders", b"hello")
    with Consumer({**conf, "group.id": "g", "auto.offset.reset": "earliest"}) as consumer:
        consumer.subscribe(["orders"])
        print(consumer.consume(1, 60)[0].value())
"""


CONTAINERS = ROOT / "docs" / "how-to" / "containers.md"


def environment() -> dict[str, str]:
    """Without the way to this tree."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


def dockerfile() -> dict[str, list[str]]:
    """The steps of the docs' Dockerfile: what each instruction is given, in order."""
    (text,) = re.findall(r"^```dockerfile\n(.*?)^```$", CONTAINERS.read_text(), re.MULTILINE | re.DOTALL)
    steps: dict[str, list[str]] = {}
    for line in text.replace("\\\n", " ").splitlines():
        instruction, _, given = line.partition(" ")
        steps.setdefault(instruction, []).append(given)
    return steps


def run(*command: str | Path, cwd: Path) -> str:
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new environment with the wheel and what the wheel asks for, in the versions of the lock."""
    folder = tmp_path_factory.mktemp("wheel")
    build = ["-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", folder, ROOT]
    run(sys.executable, *build, cwd=folder)
    (wheel,) = folder.glob("*.whl")
    venv.create(folder / "venv", with_pip=False)
    made = folder / "venv" / "bin" / "python"
    # constraints may have no hashes
    lines = [line.split(" \\")[0] for line in (ROOT / "requirements.lock").read_text().splitlines()]
    (folder / "constraints.txt").write_text("\n".join(line for line in lines if "==" in line and line[0].isalpha()))
    install = ["install", "--quiet", "--no-compile", "-c", folder / "constraints.txt", wheel]
    run(sys.executable, "-m", "pip", "--python", made, *install, cwd=folder)
    return made


@pytest.mark.timeout(600)
def test_clients_and_broker_work_without_any_extra(python: Path, tmp_path: Path) -> None:
    assert run(python, "-c", ROUND, cwd=tmp_path).strip() == "b'hello'"


@pytest.mark.parametrize(
    ("program", "extra"),
    [
        ("import kclient_quota; kclient_quota.instrument()", "otel"),
        ("from kclient_quota import KafkaMetricReader", "otel"),
        ("from kclient_telemetry.compression import *; compress(b'', CompressionType.SNAPPY)", "snappy"),
    ],
)
def test_what_is_not_there_is_named_with_its_extra(python: Path, tmp_path: Path, program: str, extra: str) -> None:
    tried = f"try: exec({program!r})\nexcept Exception as error: print(error)"
    assert f"pip install 'kclient-quota[{extra}]'" in run(python, "-c", tried, cwd=tmp_path)


@pytest.mark.parametrize("command", ["kclient-quota", "kafka-quotas", "kafka-client-metrics"])
def test_its_commands_are_there(python: Path, tmp_path: Path, command: str) -> None:
    assert "usage" in run(python.with_name(command), "--help", cwd=tmp_path)


def test_types_and_files_that_are_not_python_come_along(python: Path, tmp_path: Path) -> None:
    found = "import kclient_quota, pathlib; print(*pathlib.Path(kclient_quota.__file__).parent.rglob('*'))"
    names = {Path(name).name for name in run(python, "-c", found, cwd=tmp_path).split()}
    wanted = {"py.typed", "pom.xml", *(path.name for path in (ROOT / "kclient_quota").rglob("*.j2"))}
    assert wanted | {path.name for path in (ROOT / "kclient_quota").rglob("*.java")} <= names


def test_the_dockerfile_of_the_docs_has_what_the_wheel_needs(python: Path) -> None:
    """Without Docker: what its steps name is compared with the wheel's own words."""
    steps = dockerfile()
    metadata = next((python.parents[1] / "lib").glob("python*/site-packages/kclient_quota-*/METADATA")).read_text()
    (lowest,) = re.findall(r"^Requires-Python: >=3\.(\d+)$", metadata, re.MULTILINE)
    (image,) = steps["FROM"]
    assert int(re.fullmatch(r"python:3\.(\d+)-slim", image)[1]) >= int(lowest)
    installed, _ = steps["RUN"]
    assert installed.endswith(f" {re.search('^Name: (.+)$', metadata, re.MULTILINE)[1]}")
    entry = json.loads(steps["ENTRYPOINT"][0])
    assert entry[entry.index("--port") + 1 :] == steps["EXPOSE"]


def test_the_folder_for_data_belongs_to_the_user_who_writes_there() -> None:
    """A new volume has the owner of the folder that it covers: without one it is root's, and the broker refuses it."""
    steps = dockerfile()
    (user,) = steps["USER"]
    (made,) = [step for step in steps["RUN"] if f"useradd --create-home {user} " in f"{step} "]
    (folder,) = set(re.findall(r"--data (/\S+)`?", CONTAINERS.read_text()))
    assert made.endswith(f"&& install --directory --owner {user} {folder.strip('`')}")


def test_the_command_of_the_dockerfile_serves_under_the_name_that_is_advertised(python: Path, tmp_path: Path) -> None:
    """The port is any that is free, and the name one that leads here; all else is as it stands in the docs."""
    steps = dockerfile()
    words = json.loads(steps["ENTRYPOINT"][0]) + json.loads(steps["CMD"][0])
    here = {steps["EXPOSE"][0]: "0", "kafka": "localhost"}
    command = [str(python.with_name(words[0])), *(here.get(word, word) for word in words[1:])]
    # nothing of a home, nothing of a shell: what an image without them gives
    given = {name: value for name, value in environment().items() if name not in {"HOME", "USER", "SHELL"}}
    with subprocess.Popen(command, cwd=tmp_path, env=given, stdout=subprocess.PIPE, text=True) as broker:
        try:
            servers = broker.stdout.readline().strip().removeprefix("bootstrap.servers=")
            assert re.fullmatch(r"localhost:\d+", servers)
            throttled = []
            conf = {"bootstrap.servers": servers, "client.id": "orders", "linger.ms": 0}
            producer = confluent_kafka.Producer({**conf, "throttle_cb": throttled.append})
            while not throttled:
                producer.produce("orders", bytes(100_000))
                assert producer.flush(60) == 0
            assert len(producer.list_topics("orders", 60).topics["orders"].partitions) == 4
        finally:
            broker.send_signal(signal.SIGTERM)
        assert broker.wait(60) == 0
    assert list(tmp_path.iterdir()) == []
