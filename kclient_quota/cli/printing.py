"""What commands print: text, a table, JSON or YAML; warnings; and what they ask before they alter something."""

import argparse
import json
import os
import re
import shutil
import sys
import textwrap
from collections.abc import Callable
from typing import Any, TextIO

from kclient_quota.errors import ConfigError

FORMATS = ("text", "table", "json", "yaml")


class ListHelpFormatter(argparse.HelpFormatter):
    """Keeps the lines of descriptions and epilogs, and wraps each by itself, its second column under the first."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        lines = []
        for line in text.splitlines():
            entry = re.match(r"  \S+ +", line)
            below = indent + " " * len(entry[0] if entry else "")
            lines += textwrap.wrap(line, width, initial_indent=indent, subsequent_indent=below) or [""]
        return "\n".join(lines)


def add_output_option(parser: argparse.ArgumentParser, formats: tuple[str, ...] = FORMATS) -> None:
    """`--output`, and `--json` for short."""
    parser.add_argument("--output", choices=formats, default="text", help="default: %(default)s")
    parser.add_argument("--json", dest="output", action="store_const", const="json", help="the same as --output json")


def as_json(document: Any) -> str:
    """A document; in ASCII where what it is written to cannot have every character."""
    return json.dumps(document, indent=2, ensure_ascii=not is_utf8(sys.stdout))


def is_utf8(stream: TextIO) -> bool:
    """Whether a stream is written in UTF-8; one that does not say is."""
    return (getattr(stream, "encoding", None) or "utf-8").lower().replace("-", "") == "utf8"


def rendered(output: str, text: Callable[[], str], table: Callable[[], str], rows: Callable[[], list[Any]]) -> str:
    """What is printed in the format that was asked for, without a line end."""
    if output == "json":
        return as_json(rows())
    if output == "yaml":
        import yaml  # noqa: PLC0415 - slow to load, and hardly anybody asks for it

        return yaml.safe_dump(rows(), sort_keys=False, allow_unicode=is_utf8(sys.stdout)).rstrip("\n")
    return table() if output == "table" else text()


def columns() -> int:
    """How wide the terminal is; 80 where there is none."""
    return shutil.get_terminal_size().columns


_COLOURS = {"+": "32", "-": "31", "~": "33"}


def painted(text: str) -> str:
    """Lines of what is added green, removed red, changed yellow; only at a terminal, and not with NO_COLOR."""
    if not sys.stdout.isatty() or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return text
    lines = []
    for line in text.splitlines():
        colour = _COLOURS.get(line.lstrip()[:1]) if line.lstrip()[1:2] == " " else None
        lines.append(f"\x1b[{colour}m{line}\x1b[0m" if colour else line)
    return "\n".join(lines)


def notice(words: str) -> None:
    """One line for people on standard error, so that nothing ends silently and what is piped is only data."""
    _written(words, sys.stderr)


def warn(words: str) -> None:
    """One line on standard error."""
    notice(f"warning: {words}")


def say(text: str) -> None:
    """Print what a command tells that alters something: it goes on though nobody reads, or nothing can be written.

    `apply | head -1` is to alter everything: whoever has seen enough of a plan has not called the work off.
    """
    error = _written(text, sys.stdout)
    if error is not None and not isinstance(error, BrokenPipeError):
        warn(f"standard output: {error.strerror}; only what was to be printed is lost")


def answer(text: str) -> None:
    """Print what a command tells whose exit status is an answer: that holds though whoever reads has seen enough.

    Of `diff | head -1` with `pipefail` the shell hears that there are differences, as of `diff`.

    Raises:
        OSError: it cannot be written, for want of room maybe.
    """
    error = _written(text, sys.stdout)
    if error is not None and not isinstance(error, BrokenPipeError):
        raise error


def _written(text: str, stream: TextIO) -> OSError | None:
    """What kept a line from being written, if anything did; the stream leads nowhere from then on."""
    try:
        print(text, file=stream, flush=True)
    except OSError as error:
        leave(stream)
        return error
    return None


def leave(stream: TextIO) -> None:
    """Nobody reads a stream any more: Python flushes it once more at its end, let that and all else go nowhere."""
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
    except (OSError, ValueError):  # no file
        return


def agreed(options: argparse.Namespace, question: str, *, removals: int = 0, may_ask: bool = True) -> bool:
    """Whether to go on: `--yes`, or the answer of somebody at a terminal. A script is never asked.

    Args:
        options: with `yes`.
        question: asked at a terminal.
        removals: how many quotas would go, for which a script needs `--yes`.
        may_ask: whether a question would not spoil the output.

    Raises:
        ConfigError: there is something to remove, and nobody to ask.
    """
    if options.yes:
        return True
    if may_ask and sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty():
        print(f"{question} [y/N] ", end="", flush=True)
        return sys.stdin.readline().strip().lower() in {"y", "yes"}
    if removals:
        raise ConfigError(
            f"{removals} quotas would be removed and there is nobody to ask; add --yes. Nothing was altered"
        )
    return True
