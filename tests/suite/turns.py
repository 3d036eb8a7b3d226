"""Workers of one run know when the others are done, so that what is measured is measured alone."""

import fcntl
import tempfile
from pathlib import Path
from typing import IO

import pytest


class Turns:
    """A plug-in of every worker: holds a lock as long as it has tests to run.

    A lock goes with its process, so one that died is waited for no longer than it lived.
    """

    def __init__(self, config: pytest.Config) -> None:
        given = getattr(config, "workerinput", None)
        self._name = None if given is None else str(given["workerid"])
        self._folder = None if given is None else Path(tempfile.gettempdir()) / f"kclient-quota-{given['testrunuid']}"
        self._held: IO[str] | None = None
        if self._folder is not None:
            self._folder.mkdir(exist_ok=True)
            self._held = (self._folder / f"{self._name}.lock").open("w")
            fcntl.flock(self._held, fcntl.LOCK_EX)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self) -> None:
        """Session fixtures are gone by now."""
        if self._held is not None and self._folder is not None:
            self._held.close()
            (self._folder / f"{self._name}.lock").unlink(missing_ok=True)
            if not any(self._folder.iterdir()):
                self._folder.rmdir()

    def await_others(self) -> None:
        """Return when no other worker of this run has anything left to do; at once where there are none."""
        if self._folder is None:
            return
        for path in self._folder.glob("*.lock"):
            if path.stem != self._name:
                _await(path)


def _await(path: Path) -> None:
    try:
        with path.open() as other:
            fcntl.flock(other, fcntl.LOCK_SH)
    except FileNotFoundError:  # it ended just now
        return
