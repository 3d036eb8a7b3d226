"""What pushing metrics costs a client's process: ours, librdkafka's, Java's, each beside a twin that does not push.

The clients are idle and push every 100 ms to an embedded broker. Garbage collectors, timers and polls cost both twins
the same; the rest, divided by the pushes that arrived, is what a push costs, from collecting to the answer.
"""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from benchmarks import java_peer
from benchmarks.processes import CpuTime
from kclient_quota.broker import EmbeddedBroker
from kclient_quota.testing.apache import apache_kafka_unavailable_reason

INTERVAL_MS = 100
_LOOK_S = 1.0


def rows(*, warm_up_s: float, seconds: float) -> Iterator[dict[str, Any]]:
    """One client after another: µs of CPU time a push, its bytes and data points."""
    for kind in ("ours", "librdkafka", "java"):
        if kind == "java" and (reason := apache_kafka_unavailable_reason()) is not None:
            yield {"client": kind, "not measured": reason}
            continue
        yield {"client": kind, **_measured(kind, warm_up_s, seconds)}


def _measured(kind: str, warm_up_s: float, seconds: float) -> dict[str, Any]:
    with ExitStack() as open_things:
        cluster = open_things.enter_context(EmbeddedBroker(topics={"t": 1}))
        cluster.set_client_metrics("idle", interval_ms=INTERVAL_MS, match={"client_id": "pushing"})
        twins = {
            client_id: CpuTime(open_things.enter_context(_idle(kind, cluster.bootstrap_servers, client_id)))
            for client_id in ("pushing", "silent")
        }
        time.sleep(warm_up_s)
        before, begin = len(cluster.pushes), {name: cpu.seconds() for name, cpu in twins.items()}
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            time.sleep(_LOOK_S)
            used = {name: cpu.seconds() - begin[name] for name, cpu in twins.items()}
        pushes = len(cluster.pushes) - before
        last = cluster.pushes[-1]
    points = sum(
        len(getattr(metric, metric.WhichOneof("data")).data_points)
        for resource in last.decode().resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    )
    return {**_figures(used, pushes, seconds), "points": points, "bytes": len(last.payload)}


def _figures(used: dict[str, float], pushes: int, seconds: float) -> dict[str, Any]:
    if pushes == 0:
        raise RuntimeError("nothing was pushed")
    return {
        "pushes": pushes,
        "cpu_us_per_push": round((used["pushing"] - used["silent"]) / pushes * 1e6),
        "silent_twin_cpu_ms_per_s": round(used["silent"] / seconds * 1e3, 2),
    }


@contextmanager
def _idle(kind: str, address: str, client_id: str) -> Iterator[int]:
    """The process id of an idle client."""
    push = client_id == "pushing"
    if kind == "java":
        spec = {"class_path": java_peer.compiled(), "bootstrap": address, "client_id": client_id, "topic": "t"}
        command = java_peer.command("idle", {**spec, "enable.metrics.push": str(push).lower()})
    else:
        command = [sys.executable, "-m", "benchmarks.idle_client", kind, address, client_id, "on" if push else "off"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as client:
        assert client.stdin is not None
        assert client.stdout is not None
        try:
            if not any(line.strip() == "READY" for line in client.stdout):
                raise RuntimeError(f"an idle client ({kind}) ended before it was ready")
            yield client.pid
        finally:
            client.stdin.close()
            try:
                client.wait(10)
            except subprocess.TimeoutExpired:
                client.kill()
