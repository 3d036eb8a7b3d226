"""What all commands have in common: how they end."""

import os
import sys
from collections.abc import Callable

from kclient_telemetry.errors import MissingExtraError

from kclient_quota.errors import KclientQuotaError

INTERRUPTED = 130


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
        sys.stdout.flush()
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # whoever reads has seen enough
        _leave_stdout()
        return 0
    except (KclientQuotaError, MissingExtraError, OSError, OverflowError) as error:
        return told(error)
    return status


def script(main: Callable[[], int]) -> None:
    """The process of an installed command: as `main` says, and at once when it was interrupted.

    What is under way when somebody presses Ctrl-C (a name that is looked up, a broker that does not answer) is left to
    the operating system: waiting for it would make them press again.
    """
    status = main()
    if status == INTERRUPTED:
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except (OSError, ValueError):
                continue
        os._exit(INTERRUPTED)
    sys.exit(status)


def _leave_stdout() -> None:
    """Python flushes standard output once more at its end; let that go nowhere."""
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
    except (OSError, ValueError):  # no file
        return
