"""Broken bytes for everything that reads what strangers send.

    make fuzz                                                     # 10 million frames; benchmarks/results/fuzz.json
    python -m tests.fuzz --frames 100000 --java 1000 --sockets 1000

Fails when a reader raises anything but its own error, or takes long, or much memory; when Kafka's Java classes read
something else than ours; when a broker's other clients have to wait.
"""

import argparse
import json
import os
import resource
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

from kclient_quota.testing.apache.artefacts import apache_kafka_unavailable_reason
from tests.fuzz.oracle import against_java
from tests.fuzz.sockets import on_live_sockets
from tests.fuzz.targets import TARGETS, broken
from tests.soak.brokers import versions

SEED = 714
SLICE = 50_000
FRAME_S = 0.5
"""Seconds of CPU for one frame; sound ones of the same size take less than a thousandth of that."""
HUNG_S = 120
MEMORY_MB = 300
"""Of a process that reads; more would be what a frame of a few hundred bytes made it take."""
WAIT_S = 2.0


def play(name: str, seed: int, frames: int) -> dict[str, Any]:
    """One slice, in a process of the pool."""
    random = Random(f"{name}-{seed}")
    sound, read = TARGETS[name][1](random)
    were_read, slowest = 0, 0.0
    with _no_longer_than(HUNG_S):
        for _ in range(frames):
            told, body = random.choice(sound)
            frame = broken(random, body)
            begin = time.thread_time()
            try:
                were_read += read(told, frame)
            except Exception as error:
                raise AssertionError(f"{name}: {told}, {frame.hex()}: {error!r}") from error
            slowest = max(slowest, time.thread_time() - begin)
    memory_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    return {"name": name, "frames": frames, "read": were_read, "slowest_s": slowest, "memory_mb": memory_mb}


@contextmanager
def _no_longer_than(cpu_s: float) -> Iterator[None]:
    """Raise when the process has worked for longer; a slice needs a second or two."""

    def raised(_number: int, _frame: Any) -> None:
        raise TimeoutError(f"more than {cpu_s} s of CPU")

    signal.signal(signal.SIGPROF, raised)
    signal.setitimer(signal.ITIMER_PROF, cpu_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def in_process(frames: int, processes: int) -> dict[str, Any]:
    """All targets, in slices over the processes."""
    slices = [
        (name, number, min(SLICE, round(frames * share) - number * SLICE))
        for name, (share, _) in TARGETS.items()
        for number in range(-(-round(frames * share) // SLICE))
    ]
    found: dict[str, Any] = {name: Counter() for name in TARGETS}
    with ProcessPoolExecutor(processes) as pool:
        for done in as_completed([pool.submit(play, *one) for one in slices]):
            result = done.result()
            sums = found[result["name"]]
            sums["frames"] += result["frames"]
            sums["read"] += result["read"]
            sums["refused"] += result["frames"] - result["read"]
            sums["slowest_ms"] = max(sums["slowest_ms"], round(result["slowest_s"] * 1_000, 1))
            sums["memory_mb"] = max(sums["memory_mb"], result["memory_mb"])
    return found


def verdict(found: dict[str, Any]) -> dict[str, bool]:
    """What had to be, and whether it was."""
    targets, java, sockets = found["in_process"].values(), found.get("java"), found["sockets"]
    held = {
        "no reader crashed": True,  # or there would be no result
        f"no frame took longer than {FRAME_S} s": all(one["slowest_ms"] <= FRAME_S * 1_000 for one in targets),
        f"no process took more than {MEMORY_MB} MB": all(one["memory_mb"] <= MEMORY_MB for one in targets),
        f"nobody else waited for {WAIT_S} s of its work": sockets["most_work_while_others_waited_s"] < WAIT_S,
        "the broker works afterwards": sockets["still_works"],
    }
    if java is not None:
        held["Kafka's classes read the same, or refuse as well"] = not java["differences"]
    return held


def main() -> int:
    """Run, print, write."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__.splitlines()[0])
    parser.add_argument("--frames", type=int, default=10_000_000, help="in process, over all readers")
    parser.add_argument("--java", type=int, default=100_000, help="against Kafka's Java message classes")
    parser.add_argument("--sockets", type=int, default=100_000, help="on sockets of a broker")
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--json", type=Path, help="where the result goes, such as benchmarks/results/fuzz.json")
    chosen = parser.parse_args()
    begin = time.monotonic()
    found: dict[str, Any] = {"seed": chosen.seed, "in_process": in_process(chosen.frames, chosen.processes)}
    if (reason := apache_kafka_unavailable_reason()) is None:
        found["java"] = against_java(chosen.java, chosen.seed)
    else:
        print(f"without Java: {reason}")
    found["sockets"] = on_live_sockets(chosen.sockets, chosen.seed)
    found["minutes"] = round((time.monotonic() - begin) / 60, 1)
    held = verdict(found)
    if chosen.json is not None:
        chosen.json.write_text(json.dumps({**versions(), "verdict": held, **found}, indent=1) + "\n")
    for name, figures in {**found["in_process"], "Java": found.get("java"), "sockets": found["sockets"]}.items():
        print(f"{name}: {json.dumps(figures)}")
    for what, did in held.items():
        print(f"{'yes' if did else 'NO ':4} {what}")
    return 0 if all(held.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
