"""What all commands have in common: how they say what they do not know, and how they end."""

import argparse
import io
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Container, Iterator
from contextlib import contextmanager
from itertools import pairwise, takewhile
from types import FrameType
from typing import NoReturn

from kclient_telemetry.errors import MissingExtraError

from kclient_quota.cli.printing import leave, notice
from kclient_quota.errors import ConfigError, KclientQuotaError

FAILED, HUNG_UP, INTERRUPTED, TERMINATED = 1, 129, 130, 143


class Terminated(KeyboardInterrupt):
    """Somebody has sent SIGTERM, or the terminal is gone.

    Attributes:
        status: what the process ends with, as a shell has it.
    """

    def __init__(self, number: int) -> None:
        super().__init__()
        self.status = 128 + number


def parsed(parser: argparse.ArgumentParser, words: list[str], may_be_empty: Container[str] = ()) -> argparse.Namespace:
    """The options; an unknown one is told by its own command, with the one that is probably meant.

    An empty value is a script's variable that was never set: it would count as none, or as this folder.

    Args:
        parser: of the program.
        words: the command line.
        may_be_empty: options whose empty value says something.
    """
    options, unknown = parser.parse_known_args(words)
    if unknown:
        _refuse(_called(parser, words), unknown)
    for option in _empty(words):
        if option not in may_be_empty:
            _called(parser, words).error(f"{option} is empty: give it a value, or leave it out")
    return options


def _empty(words: list[str]) -> Iterator[str]:
    """Options whose values are, and what belongs to none and is."""
    ours = list(takewhile(lambda word: word != "--", words))
    for before, word in pairwise(["", *ours]):
        option, equals, value = word.partition("=")
        if not word:
            yield before if before.startswith("--") else f"what stands behind {before}"
        elif option.startswith("--") and equals and not value:
            yield option


def _called(parser: argparse.ArgumentParser, words: list[str]) -> argparse.ArgumentParser:
    """The parser of the command that was called, of its own command, and so on."""
    for action in parser._actions:  # noqa: SLF001 - argparse has no other way to ask
        if isinstance(action.choices, dict):
            for at, word in enumerate(words):
                if word in action.choices:
                    return _called(action.choices[word], words[at + 1 :])
    return parser


def _refuse(parser: argparse.ArgumentParser, unknown: list[str]) -> NoReturn:
    """Say what the command does not know, which of its options is meant, and how to see them all."""
    from difflib import get_close_matches  # noqa: PLC0415 - slow to load, and seldom needed

    known = sorted(option for action in parser._actions for option in action.option_strings)  # noqa: SLF001 - as above
    near = get_close_matches(unknown[0].partition("=")[0], known, 1)
    hint = f"; did you mean {near[0]}?" if near else "."
    parser.error(f"unrecognized arguments: {' '.join(unknown)}{hint} See {parser.prog} --help")


def guarded(work: Callable[[], int], told: Callable[[Exception], int]) -> int:
    """Carry a command out; whatever is wrong with its input is one line, never a traceback.

    Args:
        work: the command.
        told: prints the line and says the exit status.

    Returns:
        the exit status.
    """
    try:
        status = work()
    except KeyboardInterrupt as pressed:
        return pressed.status if isinstance(pressed, Terminated) else INTERRUPTED
    except BrokenPipeError:  # whoever reads has seen enough
        leave(sys.stdout)
        return 0
    except RecursionError:
        return told(ConfigError("what was read is nested thousands of levels deep; that is none of the files it takes"))
    except MemoryError:
        remedy = "give it more (ulimit -v, the container's limit)"
        return told(KclientQuotaError(f"there is no memory left for this process; {remedy}"))
    except (KclientQuotaError, MissingExtraError, OSError, OverflowError) as error:
        return told(error)
    return status


def script(main: Callable[[], int], *, is_answer: bool = False) -> None:
    """The process of an installed command: as `main` says, and at once when it was interrupted.

    What is under way when somebody presses Ctrl-C (a name that is looked up, a broker that does not answer) is left to
    the operating system: waiting for it would make them press again. Names that a terminal's encoding has not are
    escaped.

    Args:
        main: the command.
        is_answer: whether what it prints is what it was called for: without a standard output it fails then.
    """
    _open_what_is_closed(is_answer=is_answer)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        status = main()
    except SystemExit as ended:  # argparse has said what is wrong, or has printed a help
        status = ended.code if isinstance(ended.code, int) else 0
    except KeyboardInterrupt:  # before the command itself began
        status = INTERRUPTED
    status = _written(status)
    if status in {HUNG_UP, INTERRUPTED, TERMINATED}:
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except (OSError, ValueError):
                continue
        os._exit(status)
    sys.exit(status)


def _written(status: int) -> int:
    """Write what standard output still keeps; Python would do so last of all, and complain in its own words."""
    try:
        sys.stdout.flush()
    except OSError as error:
        leave(sys.stdout)
        if not (status or isinstance(error, BrokenPipeError)):
            notice(f"standard output: {error.strerror}")
            return FAILED
    return status


def _open_what_is_closed(*, is_answer: bool) -> None:
    """Python has no stream where a shell's `>&-` has closed one; what is written there goes nowhere, or is refused."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            is_refused = is_answer and name == "stdout"
            nowhere = os.open(os.devnull, os.O_RDONLY if is_refused else os.O_WRONLY)
            setattr(sys, name, os.fdopen(nowhere, "w", encoding="utf-8"))


@contextmanager
def stops_are_ctrl_c() -> Iterator[None]:
    """SIGTERM ends what is done meanwhile as Ctrl-C does, and SIGHUP; a second one ends the process, as it would have.

    Whoever has one ignored (`nohup`), or sees to it himself, goes on doing so.
    """
    is_main = threading.current_thread() is threading.main_thread()
    stops = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    ours = [number for number in stops if is_main and signal.getsignal(number) is signal.SIG_DFL]

    def end(number: int, _frame: FrameType | None) -> None:
        signal.signal(number, signal.SIG_DFL)
        raise Terminated(number)

    for number in ours:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number in ours:
            signal.signal(number, signal.SIG_DFL)


@contextmanager
def ctrl_c_is_one() -> Iterator[None]:
    """Whatever error comes of Ctrl-C is Ctrl-C: Spark cancels its jobs, and PySpark 4.1 tells of that as a failure.

    py4j logs it with a traceback, too, which is left out.
    """
    logging.getLogger().addFilter(lambda record: "while sending command" not in str(record.msg))
    pressed = []
    before = signal.getsignal(signal.SIGINT)

    def press(number: int, frame: FrameType | None) -> None:
        pressed.append(number)
        if callable(before):
            before(number, frame)

    is_ours = callable(before) and threading.current_thread() is threading.main_thread()
    if is_ours:
        signal.signal(signal.SIGINT, press)
    try:
        yield
    except Exception:
        if pressed:
            raise KeyboardInterrupt from None
        raise
    finally:
        if is_ours:
            signal.signal(signal.SIGINT, before)
