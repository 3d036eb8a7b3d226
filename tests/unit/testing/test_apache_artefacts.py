"""What is said when Apache Kafka cannot be fetched, and that the cache never holds half of anything."""

import subprocess
import sys
from pathlib import Path

import pytest

from kclient_quota.testing.apache import ApacheKafka, ApacheKafkaUnavailable, apache_kafka_unavailable_reason, settings
from kclient_quota.testing.apache.artefacts import class_path


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder on the path, and an empty cache."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return folder


def _tool(folder: Path, name: str, script: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def test_missing_tools_are_named(tools: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tools))
    _tool(tools, "java", "exit 0")
    expected = "Apache Kafka 4.3.1 needs javac, mvn on the path (a JDK, 17 or newer, and Maven)"
    assert apache_kafka_unavailable_reason() == expected
    with pytest.raises(ApacheKafkaUnavailable, match="needs javac, mvn"):
        ApacheKafka().start()


def test_a_failed_fetch_says_why_and_leaves_nothing(tools: Path, tmp_path: Path) -> None:
    for name in ("java", "javac"):
        _tool(tools, name, "exit 0")
    _tool(tools, "mvn", "echo '[ERROR] Could not resolve dependencies'; exit 1")
    with pytest.raises(ApacheKafkaUnavailable, match=r"check Maven's settings and the network: \[ERROR\] Could not"):
        class_path()
    assert list((tmp_path / "cache").rglob("*.jar")) == []
    assert [path.name for path in (tmp_path / "cache" / "kclient-quota").rglob("libs")] == []


def test_a_second_start_needs_neither_maven_nor_a_compiler(tools: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _tool(tools, "java", "exit 0")
    _tool(tools, "javac", "exit 0")
    _tool(tools, "mvn", 'for a in "$@"; do case $a in -DoutputDirectory=*) : > "${a#*=}/kafka.jar";; esac; done')
    first = class_path()
    assert (Path(first.rpartition(":")[2]).parent / "kafka.jar").is_file()
    for name in ("mvn", "javac"):
        (tools / name).unlink()
    monkeypatch.setenv("PATH", str(tools))
    assert apache_kafka_unavailable_reason() is None
    assert class_path() == first


def test_property_files_keep_what_java_would_interpret() -> None:
    assert settings.render({"a": "b\\c", "d": " e", "f": "g\nh"}) == "a=b\\\\c\nd=\\ e\nf=g\\nh\n"


def test_a_user_that_kafkas_login_module_cannot_hold_is_refused() -> None:
    layout = settings.Layout(node_id=1, plain_port=1, controller_port=2, sasl_port=3)
    with pytest.raises(ValueError, match="user 'a b': only letters"):
        settings.broker_properties(layout, [layout], Path("data"), {"a b": "secret"}, None)


def test_who_asks_whether_it_is_there_loads_no_messages_of_kafka() -> None:
    asks = "import sys\nfrom kclient_quota.testing import apache\napache.apache_kafka_unavailable_reason()\n"
    asks += "print([name for name in sys.modules if name.startswith('kclient_quota.wire')])"
    done = subprocess.run([sys.executable, "-c", asks], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "[]\n"
