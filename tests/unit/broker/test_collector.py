"""What stays is not looked at again; what is garbage goes, in cycles as well once there is much."""

import gc
import weakref

from kclient_quota.broker import collector
from kclient_quota.broker.collector import Collector


class Knot:
    """Garbage that only the collector finds."""

    def __init__(self):
        self.self = self


def test_what_has_outlived_a_young_collection_is_put_aside_until_there_is_much(monkeypatch):
    monkeypatch.setattr(collector, "_LOOKS", 2)
    gc.disable()
    monkeypatch.setattr(collector, "_MUCH", 1 << 40)
    own = Collector()
    own.begin()
    try:
        kept, knot = [[] for _ in range(1000)], Knot()
        gone = weakref.ref(knot)
        gc.collect(1)
        assert not any(one is kept for one in gc.get_objects()), "it is not looked at"
        del knot
        gc.collect()
        assert gone() is not None, "nor is what has become garbage since"
        own._most = own._young = 0
        gc.collect(1)
        gc.collect(1)
        gc.collect()
        assert gone() is None
        assert own._most > 2 * gc.get_freeze_count(), "not before there is twice as much"
    finally:
        own.end()
        gc.enable()
    assert own._collected not in gc.callbacks
    assert gc.get_freeze_count() == 0
