"""The versions that are promised: Python 3.11 to 3.14, and the lowest version of every dependency.

    make versions                 # what `nox` runs
    nox --session 'tests-3.14'    # one of them

Needs nox; takes environments from uv where it is there, which fetches the Pythons that are missing.
"""

import shutil
import tomllib
from pathlib import Path

import nox

PYTHONS = ["3.11", "3.12", "3.13", "3.14"]
TESTS = ["tests/unit", "tests/property", "tests/versions"]
PROJECT = tomllib.loads(Path("pyproject.toml").read_text())
EXTRAS = ",".join(extra for extra in PROJECT["project"]["optional-dependencies"] if extra not in {"java", "spark"})

nox.options.default_venv_backend = "uv|virtualenv"
nox.options.reuse_venv = "yes"
nox.options.error_on_missing_interpreters = False


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
