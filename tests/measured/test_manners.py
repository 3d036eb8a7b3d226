"""How much of a quota is used on brokers that throttle in a manner of their own, as the README says."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tests.contract.manners import BY_HAND, SILENT, consume, produce
from tests.contract.manners import SCENES as SCENES_BY_NAME
from tests.measured.hosted import in_another_process
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
    """The shares of the quota, by manner, and how long messages took."""
    return in_another_process(beside_each_other)


def beside_each_other() -> Figures:
    scenes = {**{name: scene[:2] for name, scene in SCENES_BY_NAME.items()}, "silent, limit by hand": (SILENT, BY_HAND)}
    with ThreadPoolExecutor(2 * len(scenes)) as pool:
        producing = {name: pool.submit(produce, *scenes[name]) for name in PRODUCERS}
        consuming = {name: pool.submit(consume, *scenes[name]) for name in CONSUMERS}
    wrote = {name: seen.result() for name, seen in producing.items()}
    return {
        "wrote": {name: round(each.late_share, 2) for name, each in wrote.items()},
        "read": {name: round(seen.result().share, 2) for name, seen in consuming.items()},
        "slowest_s": {name: round(each.slowest_s, 1) for name, each in wrote.items() if name != "event-hubs"},
        "throttled_s": {name: round(max(each.throttles_s, default=0), 1) for name, each in wrote.items()},
    }


ROUND = IN_EVERY_MANNER
ON_THEIR_OWN = [every_manner]


def test_the_quota_is_used_in_every_manner_of_throttling(played: Played) -> None:
    seen = played(every_manner)
    assert {name: share for name, share in seen["wrote"].items() if share < PRODUCERS[name]} == {}, seen
    assert {name: share for name, share in seen["read"].items() if share < CONSUMERS[name]} == {}, seen
    # Who has to learn may have a second request on its way when it hears of the first throttle: that one lies there
    # for as long as the broker reads nothing. Who knows the quota is never throttled for long.
    slowest_s = seen["slowest_s"]
    assert slowest_s.pop("managed") < seen["throttled_s"]["managed"] + 1, seen
    assert {name: each_s for name, each_s in slowest_s.items() if each_s >= 5} == {}, seen
