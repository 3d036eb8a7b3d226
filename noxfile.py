"""The versions that are promised: Python 3.11 to 3.14, the lowest version of every dependency, PySpark 4.1 to 4.3.

    make versions                 # Python, and the lowest versions
    make spark-versions           # PySpark
    nox --session 'tests-3.14'    # one of them

Needs nox; takes environments from uv where it is there, which fetches the Pythons that are missing.
"""

import shutil
import tomllib
from pathlib import Path

import nox

PYTHONS = ["3.11", "3.12", "3.13", "3.14"]
SPARKS = ["4.1", "4.2", "4.3"]
TESTS = ["tests/unit", "tests/property", "tests/versions"]
PROJECT = tomllib.loads(Path("pyproject.toml").read_text())
EXTRAS = ",".join(extra for extra in PROJECT["project"]["optional-dependencies"] if extra not in {"java", "spark"})

nox.options.default_venv_backend = "uv|virtualenv"
nox.options.reuse_venv = "yes"
nox.options.error_on_missing_interpreters = False
nox.options.sessions = ["tests", "lowest"]


def _install(session: nox.Session, *options: str) -> None:
    session.install(*options, f".[{EXTRAS}]", *PROJECT["dependency-groups"]["test"])


@nox.session(python=PYTHONS)
def tests(session: nox.Session) -> None:
    """What needs no waiting, and one round of every client, with the newest versions."""
    _install(session)
    session.run("python", "-m", "pytest", "-n", "logical", *TESTS, *session.posargs)


@nox.session(python=PYTHONS[:1])
def lowest(session: nox.Session) -> None:
    """The same with the lowest versions that pyproject.toml declares for what users install."""
    if shutil.which("uv") is None:
        session.skip("uv finds out the lowest versions: pip install uv")
    session.install("--resolution", "lowest-direct", f".[{EXTRAS}]", *PROJECT["dependency-groups"]["test"])
    session.run("python", "-m", "pytest", "-n", "logical", *TESTS, *session.posargs)


@nox.session(python=PYTHONS[:1])
@nox.parametrize("line", SPARKS)
def spark(session: nox.Session, line: str) -> None:
    """The pipeline with each line of PySpark; what a line cannot do is left out, and says so."""
    everything = ",".join(PROJECT["project"]["optional-dependencies"])
    session.install(f".[{everything}]", f"pyspark[connect]=={line}.*", *PROJECT["dependency-groups"]["test"])
    # PySpark before 4.3 leaves sockets open now and then, which is none of ours
    quiet = ("-W", "ignore::ResourceWarning", "-W", "ignore::pytest.PytestUnraisableExceptionWarning")
    session.run("python", "-m", "pytest", *quiet, "tests/spark", "tests/spark_grid", *session.posargs)
