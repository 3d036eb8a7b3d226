"""`kafka-quotas`: KIP-546's command as its draft has it, and quotas as code."""

import argparse
import difflib
import sys

from kclient_quota.cli.printing import notice
from kclient_quota.cli.quota_arguments import COMMANDS, MODES, command_parser, draft_parser
from kclient_quota.cli.quota_options import CONFLICT, FAILED, WRONG
from kclient_quota.cli.running import guarded, parsed, script, stops_are_ctrl_c
from kclient_quota.errors import ConfigError

_WITH_VALUE = ("--bootstrap-server", "--command-config", "--timeout", "--units-store")
_NAMES = ("--entity-name", "--user", "--client", "--ip")
"""Refused in words of their own: an empty one is the default's to Kafka's tool."""


def main(argv: list[str] | None = None) -> int:
    """Run the command line `argv` (the process's own when None).

    Returns:
        the exit status, see `EXIT_CODES`; 130 interrupted, 143 ended by SIGTERM, 129 by SIGHUP.
    """
    words = sys.argv[1:] if argv is None else list(argv)
    is_detailed = "--detailed-exitcode" in words  # 2 then says that there is something to do, whatever is wrong is 1

    def told(error: Exception) -> int:
        from kclient_quota.admin.applying import ConflictError  # noqa: PLC0415 - slow to load, for --help

        notice(f"kafka-quotas: {error}")
        if is_detailed:
            return FAILED
        return CONFLICT if isinstance(error, ConflictError) else WRONG if isinstance(error, ConfigError) else FAILED

    try:
        options = _parsed(words)
    except SystemExit as ended:
        if is_detailed and ended.code:
            return FAILED
        raise

    def work() -> int:
        with stops_are_ctrl_c():
            return int(options.run(options))

    return guarded(work, told)


def _parsed(words: list[str]) -> argparse.Namespace:
    """Of the command that is named, with whatever options stand before its name; else of the draft's options."""
    before, rest = _split(words)
    if rest and rest[0] in COMMANDS:
        return parsed(command_parser(), [rest[0], *before, *rest[1:]], _NAMES)
    if rest and rest[0] in MODES:
        return parsed(draft_parser(), [*before, f"--{rest[0]}", *rest[1:]])
    if rest and not rest[0].startswith("-"):
        near = difflib.get_close_matches(rest[0], (*COMMANDS, *MODES), 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        draft_parser().error(f"there is no command {rest[0]!r}{hint} Commands: {', '.join(COMMANDS)}")
    return parsed(draft_parser(), words)


def _split(words: list[str]) -> tuple[list[str], list[str]]:
    """The options that all commands have and that stand at the beginning, and what follows."""
    at = 0
    while at < len(words):
        name, equals, _ = words[at].partition("=")
        if name not in _WITH_VALUE:
            break
        at += 1 if equals else 2
    return words[:at], words[at:]


def entry() -> None:
    """The installed command."""
    script(main, is_answer=True)


if __name__ == "__main__":
    entry()
