"""docs/reference/commands.md: every command's own `--help`."""

import contextlib
import io
import os
from collections.abc import Callable
from unittest import mock

from docs.generate.page import head
from kclient_quota.cli import client_metrics, main, quotas

_CALLS: dict[str, Callable[[list[str]], int]] = {
    "kclient-quota": main.main,
    "kafka-quotas": quotas.main,
    "kafka-client-metrics": client_metrics.main,
}


def page() -> str:
    """The whole page."""
    parts = [
        head(
            "Commands and exit codes",
            "`python -m kclient_quota` is `kclient-quota`. Every command takes `--help` and `--version`; results go to "
            "standard output, everything else to standard error. What alters something does so to its end, though nobody reads "
            "its output any more (`apply --yes | head -1`).",
            "| exit code | `kclient-quota` | `kafka-quotas` | `kafka-client-metrics` |\n|---|---|---|---|\n"
            "| 0 | done | done | done |\n"
            "| 1 | failed, one line says why | the cluster refused, did not answer, or did half | refused or wrong options "
            "(as Kafka's tool) |\n"
            "| 2 | wrong options or file | wrong options or file | |\n"
            "| 3 | | somebody changed quotas meanwhile; nothing was overwritten | |\n"
            "| 4 | | `diff`: there are differences | |\n"
            "| 130 | Ctrl-C | Ctrl-C | Ctrl-C |",
        )
    ]
    for name, call in _CALLS.items():
        parts.append(_section(name, call, []))
        commands = {"kclient-quota": [known.name for known in main._COMMANDS], "kafka-quotas": list(quotas.COMMANDS)}
        parts += [_section(f"{name} {command}", call, [command]) for command in commands.get(name, [])]
    return "\n".join(parts)


def _section(title: str, call: Callable[[list[str]], int], words: list[str]) -> str:
    said = io.StringIO()
    plain = {"COLUMNS": "100", "NO_COLOR": "1"}
    with mock.patch.dict(os.environ, plain), contextlib.redirect_stdout(said), contextlib.suppress(SystemExit):
        call([*words, "--help"])
    level = "###" if words else "##"
    return f"{level} {title}\n\n```text\n{said.getvalue().strip()}\n```\n"
