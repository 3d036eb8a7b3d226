"""On a clean clone nothing is compiled: workers share that, in place of each compiling all five hundred modules.

Compiling them takes two thirds of what it takes to collect their tests, and workers begin at the same moment.
"""

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

import pytest

One = TypeVar("One")


def import_in_turns(config: pytest.Config) -> None:
    """Import the modules that are about to be collected, each worker others first, and what they compile stays.

    A module that cannot be imported is left for who collects it, who says so.
    """
    worker = getattr(config, "workerinput", None)
    if worker is None:
        return
    root = config.rootpath
    modules = sorted({module for argument in config.args for module in _modules(root / argument.split("::")[0])})
    modules = [module for module in modules if module.is_relative_to(root)]  # of others the names are not known
    for path in from_share(modules, int(worker["workerid"].removeprefix("gw")), worker["workercount"]):
        name = ".".join(path.relative_to(root).with_suffix("").parts)  # pytest's, which finds it imported then
        try:
            importlib.import_module(name)
        except (Exception, pytest.skip.Exception):  # noqa: BLE001 - of what is collected next, and reported there
            continue


def from_share(things: Sequence[One], number: int, of: int) -> list[One]:
    """All of them, beginning with the share of one worker: when it comes to the share of another, that is compiled."""
    begin = len(things) * (number % of) // of
    return [*things[begin:], *things[:begin]]


def _modules(path: Path) -> list[Path]:
    return [path] if path.is_file() else list(path.rglob("test_*.py"))
