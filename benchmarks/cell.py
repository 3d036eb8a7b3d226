"""One measurement in a process of its own: a JSON object in on standard input, one out on standard output."""

import importlib
import json
import os
import resource
import subprocess
import sys
import threading
import time
from typing import Any

_KINDS = (
    "producing", "consuming", "looping", "filling", "readback", "calls", "calls_aio", "broker_runs", "light_use",
    "small_messages",
)  # fmt: skip


_running: set[subprocess.Popen[str]] = set()
_stopped = threading.Event()


def measure(kind: str, spec: dict[str, Any], *, timeout_s: float) -> dict[str, Any]:
    """Runs `benchmarks.<kind>` in a child process.

    Raises:
        RuntimeError: with the child's last words, when it fails, or takes longer than that; after `stop_all()`.
    """
    what = f"{kind} {spec.get('client', '')}"
    if _stopped.is_set():
        raise RuntimeError(f"{what}: broken off")
    with subprocess.Popen(
        [sys.executable, "-m", "benchmarks.cell", kind],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as child:  # fmt: skip
        _running.add(child)
        if _stopped.is_set():  # in between
            child.kill()
        try:
            told, said = child.communicate(json.dumps(spec), timeout_s)
        except subprocess.TimeoutExpired:
            raise RuntimeError(f"{what}: no end after {timeout_s:.0f} s") from None
        finally:
            _running.discard(child)
            child.kill()
    if child.returncode != 0:
        raise RuntimeError(f"{what}: {said.strip()[-2000:] or f'status {child.returncode}'}")
    result: dict[str, Any] = json.loads(told.splitlines()[-1])
    result["stderr"] = said.splitlines()[-20:]
    return result


def stop_all() -> None:
    """Ends every child that other threads wait for; there will be no more."""
    _stopped.set()
    for child in list(_running):
        child.kill()


def main() -> None:
    """The child's side."""
    kind = sys.argv[1]
    if kind not in _KINDS:
        raise SystemExit(f"unknown kind {kind!r}; known: {', '.join(_KINDS)}")
    spec = json.load(sys.stdin)
    threading.Thread(target=_end_with_parent, args=(os.getppid(),), daemon=True).start()
    result = importlib.import_module(f"benchmarks.{kind}").run(spec)
    used = resource.getrusage(resource.RUSAGE_SELF)
    result.setdefault("cpu_s", used.ru_utime + used.ru_stime)
    print(json.dumps(result), flush=True)
    # a client that still waits out a throttle must not keep the measurement from ending
    os._exit(0)


def _end_with_parent(parent: int) -> None:
    """Nobody would read the result; a client under quota can go on for minutes."""
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)


if __name__ == "__main__":
    main()
