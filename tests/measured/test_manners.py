"""How much of a quota is used on brokers that throttle in a manner of their own, as the README says."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tests.contract.manners import BY_HAND, SILENT, consume, produce
from tests.contract.manners import SCENES as SCENES_BY_NAME
from tests.measured.scenes import IN_EVERY_MANNER, Figures, Played

PRODUCERS = {
    "kafka": 0.83,
    "redpanda": 0.80,
    "event-hubs": 0.69,
    "event-hubs, limit by hand": 0.74,
    "managed": 0.75,
    "silent, limit by hand": 0.79,
}
"""The least share in the last seconds."""
CONSUMERS = {"kafka": 0.83, "redpanda": 0.82, "event-hubs, limit by hand": 0.77, "silent, limit by hand": 0.83}
"""The least share from the start; who has to learn takes longer than a test does."""


def every_manner(_cluster: Any) -> Figures:
    """What was seen of writers and of readers, by manner."""
    scenes = {**{name: scene[:2] for name, scene in SCENES_BY_NAME.items()}, "silent, limit by hand": (SILENT, BY_HAND)}
    with ThreadPoolExecutor(2 * len(scenes)) as pool:
        producing = {name: pool.submit(produce, *scenes[name]) for name in PRODUCERS}
        consuming = {name: pool.submit(consume, *scenes[name]) for name in CONSUMERS}
    return {
        "wrote": {name: seen.result() for name, seen in producing.items()},
        "read": {name: seen.result() for name, seen in consuming.items()},
    }


ROUND = IN_EVERY_MANNER
ON_THEIR_OWN = [every_manner]


def test_the_quota_is_used_in_every_manner_of_throttling(played: Played) -> None:
    seen = played(every_manner)
    wrote = {name: round(each.late_share, 2) for name, each in seen["wrote"].items()}
    read = {name: round(each.share, 2) for name, each in seen["read"].items()}
    assert {name: share for name, share in wrote.items() if share < PRODUCERS[name]} == {}, wrote
    assert {name: share for name, share in read.items() if share < CONSUMERS[name]} == {}, read
    latest = {name: each.slowest_s for name, each in seen["wrote"].items() if name != "event-hubs"}
    assert max(latest.values()) < 5, latest
