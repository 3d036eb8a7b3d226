import ast
import subprocess
import sys
import types
from pathlib import Path

import pytest

import kclient_quota


def test_importing_the_package_loads_no_librdkafka() -> None:
    program = "import sys, kclient_quota; sys.exit('confluent_kafka' in sys.modules or 'asyncio' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_every_name_is_there_and_said_once() -> None:
    assert len(kclient_quota.__all__) == len(set(kclient_quota.__all__))
    assert set(kclient_quota.__all__) | {"KafkaMetricReader"} == {*kclient_quota._HOMES, "__version__"}
    for name in kclient_quota._HOMES:
        assert getattr(getattr(kclient_quota, name), "__name__", name) == name


@pytest.mark.parametrize("package", ["kclient_quota", "kclient_telemetry"])
@pytest.mark.parametrize("program", ["from {} import *", "import inspect, {0}; inspect.getmembers({0})"])
def test_all_names_at_once_need_no_extra(package: str, program: str) -> None:
    missing = "import sys; sys.modules['opentelemetry.sdk.metrics'] = None; "
    run = [sys.executable, "-c", missing + program.format(package)]
    assert subprocess.run(run, check=False, capture_output=True, text=True).stderr == ""


@pytest.mark.parametrize("build", [types.ModuleType("kclient_quota._version"), None])
def test_the_version_is_there_whoever_has_loaded_what_the_build_wrote(
    build: types.ModuleType | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if build is not None:
        build.version = "1.2.3"  # type: ignore[attr-defined]
        monkeypatch.setattr(kclient_quota, "_version", build, raising=False)  # as importing a submodule does
    monkeypatch.setitem(sys.modules, "kclient_quota._version", build)
    monkeypatch.delitem(vars(kclient_quota), "__version__", raising=False)
    assert kclient_quota.__version__ == ("0.2.0" if build is None else "1.2.3")
    vars(kclient_quota).pop("__version__")


def test_what_is_not_there_says_so() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Nonsense'"):
        _ = kclient_quota.Nonsense


def test_what_a_type_checker_sees_is_what_is_there() -> None:
    tree = ast.parse(Path(kclient_quota.__file__).read_text())
    (guarded,) = (node for node in tree.body if isinstance(node, ast.If))
    seen = {
        alias.name: node.module for node in guarded.body if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    assert seen == {
        name: home if home.startswith("kclient_telemetry") else f"kclient_quota.{home}"
        for name, home in kclient_quota._HOMES.items()
    }


@pytest.mark.parametrize("name", sorted(kclient_quota._HOMES))
def test_every_name_is_documented(name: str) -> None:
    documented = getattr(kclient_quota, name)
    assert documented.__doc__
    assert documented.__doc__.strip()
