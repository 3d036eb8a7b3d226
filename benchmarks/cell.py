"""One measurement in a process of its own: a JSON object in on standard input, one out on standard output."""

import importlib
import json
import os
import resource
import subprocess
import sys
from typing import Any

_KINDS = ("producing", "consuming", "filling", "readback", "calls", "broker_runs")


def measure(kind: str, spec: dict[str, Any], *, timeout_s: float) -> dict[str, Any]:
    """Runs `benchmarks.<kind>` in a child process.

    Raises:
        RuntimeError: with the child's last words, when it fails.
    """
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.cell", kind],
        input=json.dumps(spec),
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"{kind} {spec.get('client', '')}: {done.stderr.strip()[-2000:]}")
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    result["stderr"] = done.stderr.splitlines()[-20:]
    return result


def main() -> None:
    """The child's side."""
    kind = sys.argv[1]
    if kind not in _KINDS:
        raise SystemExit(f"unknown kind {kind!r}; known: {', '.join(_KINDS)}")
    spec = json.load(sys.stdin)
    result = importlib.import_module(f"benchmarks.{kind}").run(spec)
    used = resource.getrusage(resource.RUSAGE_SELF)
    result["cpu_s"] = used.ru_utime + used.ru_stime
    print(json.dumps(result), flush=True)
    # a client that still waits out a throttle must not keep the measurement from ending
    os._exit(0)


if __name__ == "__main__":
    main()
