"""Fleets with the same pushes, byte for byte, that do something else: what no estimate can tell from pushes.

A push holds the bytes since the last one, and the rate of its last 30 to 60 seconds. Whatever a client did before those
seconds may be put into any other order: its push stays the same. Here each client keeps its own seconds, so its bursts
are as high and as many as before. They only come when those who share its user's quota send most (`MOST`), or when they
send least (`LEAST`). One estimate has to do for both: however it is made, it is wrong by `nearest` for one of them.
"""

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from benchmarks.spark_truth_fleets import SECONDS, Bytes, Client, told_since_s

if TYPE_CHECKING:
    from collections.abc import Iterable

LEAST, MOST = -1, 1
_SOON_S: Final = 150
"""Where nobody has been placed yet, those of `MOST` come around the middle of every two of these."""


def twin(clients: list[Client], which: int) -> list[Client]:
    """A fleet whose pushes are those of `clients`, of which `pushes` has been made.

    Args:
        clients: of `fleet`.
        which: LEAST or MOST.
    """
    hump = np.cos(np.arange(SECONDS) * np.pi / _SOON_S)
    loads: dict[tuple[str, str], Bytes] = {}
    found = []
    for client in clients:
        load = loads.setdefault((client.role, client.user), hump * (which == MOST))
        sends = client.sends.copy()
        for last_s, at_s in client.pushed_s:
            head = slice(last_s, max(last_s, told_since_s(at_s)))
            order = np.argsort(which * load[head], kind="stable")
            sends[head][order] = np.sort(client.sends[head])
        loads[client.role, client.user] = load + sends
        found.append(replace(client, sends=sends))
    return found


def is_same(one: list[Client], two: list[Client]) -> bool:
    """Whether both do the same in every second."""
    return all(np.array_equal(each.sends, other.sends) for each, other in zip(one, two, strict=True))


def nearest(throttled: "Iterable[float]") -> float:
    """How far off the best of all estimates is, as a part of the truth, where each of these may be the truth."""
    lowest, highest = min(throttled), max(throttled)
    return (highest - lowest) / (highest + lowest) if highest else 0.0
