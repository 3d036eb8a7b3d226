"""`kclient-quota top` at a terminal of its own: how it ends, and what it leaves of that terminal."""

import os
import pty
import select
import signal
import subprocess
import sys
import termios
import time
from contextlib import contextmanager

import pytest
from kclient_telemetry.receiver.endpoint import PrometheusEndpoint

PLAIN_SCREEN = b"\x1b[?1049l"
"""Back from the screen that programs have for themselves."""


@pytest.fixture
def page():
    endpoint = PrometheusEndpoint()
    yield f"http://127.0.0.1:{endpoint.port}/metrics"
    endpoint.close(10_000)


def told_until(terminal, said, *, within_s=60):
    """All that comes until the terminal has been told this."""
    told, end = b"", time.monotonic() + within_s
    while said not in told:
        assert time.monotonic() < end, told[-500:]
        if select.select([terminal], [], [], 0.1)[0]:
            told += os.read(terminal, 65_536)
    return told


@contextmanager
def shown(page):
    """The process, the terminal's other end, and the terminal."""
    other_end, terminal = pty.openpty()
    termios.tcsetwinsize(terminal, (24, 80))
    code = "import fcntl, termios as t, kclient_quota.cli.main as m; fcntl.ioctl(0, t.TIOCSCTTY, 0); m.entry()"
    process = subprocess.Popen(
        [sys.executable, "-c", code, "top", "--prometheus", page, "--interval", "0.2"],
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        env={**os.environ, "TERM": "xterm-256color"},
        start_new_session=True,
    )
    try:
        told_until(other_end, b"0 clients")
        yield process, other_end, terminal
    finally:
        process.kill()
        process.wait(60)
        os.close(other_end)
        os.close(terminal)


@pytest.mark.parametrize(
    ("end", "status"),
    [
        (lambda process, _: process.send_signal(signal.SIGTERM), 143),
        (lambda process, _: process.send_signal(signal.SIGINT), 0),
        (lambda _, other_end: os.write(other_end, b"\x03"), 0),
        (lambda _, other_end: os.write(other_end, b"q"), 0),
    ],
    ids=["SIGTERM", "SIGINT", "Ctrl-C", "q"],
)
def test_it_ends_and_leaves_the_terminal_as_it_was(page, end, status):
    """After SIGTERM it had no echo and no lines; of Ctrl-C textual only said which other key would do."""
    with shown(page) as (process, other_end, terminal):
        assert not termios.tcgetattr(terminal)[3] & termios.ECHO
        end(process, other_end)
        told_until(other_end, PLAIN_SCREEN)
        assert process.wait(60) == status
        assert termios.tcgetattr(terminal)[3] & (termios.ECHO | termios.ICANON) == termios.ECHO | termios.ICANON


def test_no_standard_input_is_no_keyboard(page):
    """As a shell's `<&-` leaves it: it was an AttributeError."""
    code = "import sys, kclient_quota.cli.main as m; sys.stdin = None; m.entry()"
    words = [sys.executable, "-c", code, "top", "--prometheus", page, "--once"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "0 clients, 0 held up by a quota\n\nno client has pushed anything yet\n"
