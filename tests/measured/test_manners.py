"""How much of a quota is used on brokers that throttle in a manner of their own, as the README says."""

from concurrent.futures import ThreadPoolExecutor

from tests.contract.manners import BY_HAND, SCENES, SILENT, consume, produce

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


def test_the_quota_is_used_in_every_manner_of_throttling() -> None:
    scenes = {**{name: scene[:2] for name, scene in SCENES.items()}, "silent, limit by hand": (SILENT, BY_HAND)}
    with ThreadPoolExecutor(2 * len(scenes)) as pool:
        producing = {name: pool.submit(produce, *scenes[name]) for name in PRODUCERS}
        consuming = {name: pool.submit(consume, *scenes[name]) for name in CONSUMERS}
    wrote = {name: round(seen.result().late_share, 2) for name, seen in producing.items()}
    read = {name: round(seen.result().share, 2) for name, seen in consuming.items()}
    assert {name: share for name, share in wrote.items() if share < PRODUCERS[name]} == {}, wrote
    assert {name: share for name, share in read.items() if share < CONSUMERS[name]} == {}, read
    latest = {name: seen.result().slowest_s for name, seen in producing.items() if name != "event-hubs"}
    assert max(latest.values()) < 5, latest
