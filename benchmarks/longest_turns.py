"""How long the embedded broker's loop is busy at one stretch with requests that name very much.

`python -m benchmarks.longest_turns` prints it for every API, in milliseconds of the loop's own CPU time, on a broker
with 100,000 partitions. While such a turn lasts nobody else is answered. `--topics` says among how many topics they
are. Python's garbage collector is off: here it would have the client's objects to look through as well.
"""

import argparse
import asyncio.events
import gc
import time
from collections.abc import Callable, Iterable
from typing import Any

from benchmarks.long_requests import QUIET, requests_of
from kclient_quota.broker import EmbeddedBroker
from kclient_quota.clock import SYSTEM_CLOCK
from kclient_quota.wire.connection import Connection, ConnectionSettings
from kclient_quota.wire.schema import Request

PARTITIONS = 100_000
_TIMEOUT_MS = 300_000
_BOUND_MS = 50
_PROPERTIES = {
    "group.initial.rebalance.delay.ms": "0",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}


class Turns:
    """What every turn of a loop has cost since the last look, in seconds of CPU time of its thread."""

    def __init__(self) -> None:
        self.took: list[float] = []
        plain: Callable[[asyncio.events.Handle], None] = asyncio.events.Handle._run  # noqa: SLF001 - there is no other door

        def run(handle: asyncio.events.Handle) -> None:
            began = time.thread_time()
            plain(handle)
            self.took.append(time.thread_time() - began)

        asyncio.events.Handle._run = run  # type: ignore[method-assign,assignment]  # noqa: SLF001

    def look(self) -> list[float]:
        """All of them, and begin anew."""
        took, self.took = self.took, []
        return took


def main() -> None:
    """Print a line for every kind of request, the longest turn first of what is printed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--topics", type=int, default=10_000)
    parser.add_argument("--only", default="", help="kinds of requests whose names begin so")
    given = parser.parse_args()
    turns = Turns()
    gc.disable()
    with EmbeddedBroker(properties=_PROPERTIES) as cluster:
        host, _, port = cluster.bootstrap_servers.rpartition(":")
        settings = ConnectionSettings(host, int(port), client_id="long")
        with Connection(settings, SYSTEM_CLOCK) as connection:
            longest = _measured(connection, requests_of(given.topics, PARTITIONS // given.topics), turns, given.only)
    print(f"longest turn of all: {longest:.0f} ms; {'within' if longest <= _BOUND_MS else 'beyond'} {_BOUND_MS} ms")


def _measured(
    connection: Connection, requests: Iterable[tuple[str, Callable[[Any], Request]]], turns: Turns, only: str
) -> float:
    """Milliseconds of the longest turn of those that were printed."""
    longest, answer = 0.0, None
    for name, make in requests:
        request = make(answer)
        turns.look()
        began = time.perf_counter()
        answer = connection.send(request, timeout_ms=_TIMEOUT_MS)
        took_s = time.perf_counter() - began
        if not name.startswith(only) or name.startswith(QUIET):
            continue
        # what goes on after the answer, such as telling of a group, belongs to it
        time.sleep(0.2)
        took = turns.look()
        if took:
            print(f"{name:45} {max(took) * 1e3:6.1f} ms of {sum(took):6.2f} s in {len(took):6} turns, {took_s:.1f} s")
            longest = max(longest, max(took) * 1e3)
    return longest


if __name__ == "__main__":
    main()
