"""Commands in processes of their own, and Ctrl-C."""

import signal
import subprocess
import sys
import time
from pathlib import Path

PROMPT_S = 9
"""A second, and what a busy machine takes besides; who waits for a broker or a child first takes ten and more."""


def started(module, *words):
    """A command in a process of its own, which has begun to load."""
    # in the background, and under `nohup`, too
    hears = "signal.signal(signal.SIGINT, signal.default_int_handler); signal.signal(signal.SIGHUP, signal.SIG_DFL)"
    named = f"import sys; sys.argv[1:] = {list(words)!r}; import {module} as m"
    code = f"import signal; {hears}; {named}; print('on', flush=True); m.entry()"
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, process_group=0
    )
    assert process.stdout.readline() == "on\n"
    return process


def interrupted(process, by=signal.SIGINT):
    """How many seconds it took to end, and what it said besides."""
    with process:
        began = time.monotonic()
        process.send_signal(by)
        _, err = process.communicate(timeout=90)
        assert "Traceback" not in err
        return time.monotonic() - began, err


def soon(is_so, within_s=60):
    """Wait until it is."""
    end = time.monotonic() + within_s
    while not is_so():
        assert time.monotonic() < end, f"not within {within_s} s"
        time.sleep(0.05)


def is_alive(pid):
    """Whether a process runs."""
    status = Path(f"/proc/{pid}/stat")
    return status.exists() and status.read_text().rpartition(")")[2].split()[0] != "Z"


def children_of(pid):
    """The processes that it has started, in whichever thread."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()] + [
        int(child)
        for task in Path(f"/proc/{pid}/task").iterdir()
        if task.name != str(pid)
        for child in (task / "children").read_text().split()
    ]
