"""What is installed with what, and what is said where something is missing."""

import ast
import re
import subprocess
import sys
import tomllib
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from pkgutil import iter_modules, walk_packages

import pytest
from kclient_telemetry import compression

import kclient_quota
from kclient_quota import cli
from kclient_quota.broker import command as broker_command
from kclient_quota.broker import handlers
from kclient_quota.cli import client_metrics, installed, main, quotas

ROOT = Path(__file__).parents[2]
TOOLS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
# What the requirements of the core bring along: none of these may need more in turn (`make lock` shows it).
BROUGHT_ALONG = {"asn1crypto"}


def names(requirements: list[str]) -> set[str]:
    return {re.split(r"[\[<>=; ]", requirement)[0].replace(".", "-") for requirement in requirements}


def locked(path: str) -> dict[str, str]:
    return dict(re.findall(r"^([a-z0-9-]+)==(\S+)", (ROOT / path).read_text(), re.MULTILINE))


def imported_by(source: Path) -> set[str]:
    """What its import statements name."""
    found = [node for node in ast.walk(ast.parse(source.read_text())) if isinstance(node, ast.ImportFrom)]
    return {str(node.module) for node in found} | {
        f"{node.module}.{name.name}" for node in found for name in node.names
    }


def test_the_core_needs_eight_packages_beside_confluent_kafka() -> None:
    core = names(PROJECT["dependencies"]) | BROUGHT_ALONG
    assert len(core - {"confluent-kafka"}) <= 8


def test_what_the_demo_installs_is_the_core_and_its_extra() -> None:
    demo = locked("requirements-demo.lock")
    assert names(PROJECT["dependencies"]) | names(PROJECT["optional-dependencies"]["demo"]) <= demo.keys()
    assert not demo.keys() & {"pyspark", "grpcio", "ruff", "mypy", "pytest", "pandas", "opentelemetry-sdk"}


def test_pip_takes_what_the_locks_name_and_looks_for_nothing_else() -> None:
    """A release made after the lock changes nothing: an index is never asked what is newest."""
    lines = (ROOT / "Makefile").read_text().splitlines()
    installs = [line for line in lines if re.search(r"-r requirements.*\.lock", line)]
    assert len(installs) == 3
    assert all("--no-deps" in line and "--require-hashes" in line for line in installs)


def test_what_freezes_a_program_sees_every_command() -> None:
    """PyInstaller, cx_Freeze and Nuitka read import statements, wherever they stand; a name in a string is none."""
    there = {f"{cli.__name__}.{module.name}" for module in iter_modules(cli.__path__)} | {broker_command.__name__}
    found: set[str] = set()
    new = {installed.__name__}
    while new:
        found |= new
        new = {name for module in new for name in imported_by(Path(str(find_spec(module).origin)))} & there - found
    assert found == there


def test_what_freezes_a_program_sees_every_api_of_the_embedded_broker() -> None:
    """cx_Freeze and Nuitka know nothing of hooks for PyInstaller."""
    imported = imported_by(Path(handlers.__file__))
    there = {module.name for module in walk_packages(handlers.__path__, f"{handlers.__name__}.") if not module.ispkg}
    assert there
    assert there <= imported


def test_what_freezes_a_program_sees_that_zstd_is_used() -> None:
    """PyInstaller, Nuitka and the like read import statements; a name that is put together is none."""
    assert {"backports.zstd", "compression.zstd"} <= imported_by(Path(compression.__file__))


def test_both_locks_name_the_same_versions() -> None:
    everything = locked("requirements.lock")
    assert {name: everything[name] for name in locked("requirements-demo.lock")} == locked("requirements-demo.lock")


def test_a_clone_without_tags_has_the_version_that_the_changes_begin_with() -> None:
    first = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert first is not None
    scm = TOOLS["setuptools_scm"]
    assert scm["fallback_version"] == first[1]
    assert f"echo v{first[1]}-0-g" in scm["git_describe_command"][-1]
    assert f'__version__ = "{first[1]}"\n' in Path(kclient_quota.__file__).read_text()


@pytest.mark.parametrize("command", [main.main, quotas.main, client_metrics.main], ids=["main", "quotas", "metrics"])
def test_every_command_says_its_version(command, capsys) -> None:
    with pytest.raises(SystemExit) as ended:
        command(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out.split()[1] == kclient_quota.__version__


def test_the_package_runs_as_a_command() -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "kclient_quota", "--version"], capture_output=True, text=True, check=True
    )
    assert ran.stdout == f"kclient-quota {kclient_quota.__version__}\n"


@pytest.mark.parametrize(
    ("module", "missing", "extra"),
    [
        ("kclient_telemetry.receiver.otlp_grpc", "grpc", "grpc"),
        ("kclient_telemetry.client.otel", "opentelemetry.sdk.metrics", "otel"),
    ],
)
def test_a_missing_extra_is_named(module, missing, extra, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    monkeypatch.delitem(sys.modules, module, raising=False)
    with pytest.raises(kclient_quota.MissingExtraError, match=rf"pip install 'kclient-quota\[{extra}\]'"):
        import_module(module)


def test_a_command_that_needs_an_extra_says_so_in_one_line(monkeypatch, capsys) -> None:
    monkeypatch.setitem(sys.modules, "grpc", None)
    monkeypatch.delitem(sys.modules, "kclient_telemetry.receiver.otlp_grpc", raising=False)
    assert main.main(["broker", "--otlp", "grpc://127.0.0.1:4317"]) == 2
    said = capsys.readouterr().err
    assert "kclient-quota[grpc]" in said
    assert said.count("\n") == 1


# Loaded in a process of its own, with these modules hidden as if they were not installed.
LOADED = """
import sys
for name in {hidden!r}:
    sys.modules[name] = None
from kclient_quota import {name}
print(*sorted(sys.modules))
"""
EXTRAS = ["cramjam", "grpc", "opentelemetry.sdk", "jinja2", "matplotlib", "rich", "pyarrow", "pyspark", "pandas"]


@pytest.mark.parametrize("name", ["Producer", "Consumer", "AIOProducer", "QuotaAdmin"])
def test_clients_need_no_extra_and_load_no_protobuf_codecs_or_scram_before_they_use_them(name) -> None:
    program = LOADED.format(hidden=EXTRAS, name=name)
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert not {"google.protobuf", "lz4", "backports.zstd", "yaml", "crc32c"} & set(loaded)


PLAIN_AND_OURS = """
import __future__, sys  # the first is there already where a package is installed from its sources
from confluent_kafka import Producer
plain = set(sys.modules)
from kclient_quota import Producer
print(*sorted(set(sys.modules) - plain))
"""


def test_a_producer_that_is_only_imported_loads_little_more_than_confluent_kafka_does() -> None:
    """Everything else is loaded with the first producer that is made; this many take half as long as the plain one."""
    ran = subprocess.run([sys.executable, "-c", PLAIN_AND_OURS], capture_output=True, text=True, check=True)
    loaded = set(ran.stdout.split())
    assert len(loaded) <= 20, loaded
    assert not {name for name in loaded if name.startswith("kclient_quota.pacing")}
    assert not loaded & {"difflib", "json", "random", "importlib.metadata"}
