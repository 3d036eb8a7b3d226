"""Deadlines by key, beside a dictionary that is looked through."""

from random import Random

import pytest

from kclient_quota.broker.groups.timers import Timers


@pytest.mark.parametrize("seed", range(50))
def test_whoever_is_due_first_is_first(seed: int) -> None:
    random, timers, now_ms = Random(seed), Timers[int](), 0
    known: dict[int, tuple[int, int]] = {}
    for count in range(300):
        key, what = random.randrange(6), random.random()
        if what < 0.5:
            known[key] = now_ms + random.randrange(-3, 20), count
            timers.schedule(key, known[key][0])
        elif what < 0.65:
            timers.cancel(key)
            known.pop(key, None)
        else:
            now_ms += random.randrange(8)
        if what < 0.3:
            assert timers.next_deadline_ms() == min(known.values(), default=(None,))[0]
        if random.random() < 0.3:
            due = sorted((entry, key) for key, entry in known.items() if entry[0] <= now_ms)
            wanted = due[0][1] if due else None
            assert timers.pop_due(now_ms) == wanted
            known = {key: entry for key, entry in known.items() if key != wanted}
        assert [timers.deadline_ms(key) for key in range(6)] == [known.get(key, (None,))[0] for key in range(6)]


def test_a_deadline_that_is_moved_again_and_again_stands_in_the_queue_once() -> None:
    timers = Timers[str]()
    timers.schedule("silent", 1_000)
    for now_ms in range(10_000):
        timers.schedule("beats", now_ms + 45_000)
    assert len(timers._heap) == 2
    timers.cancel("silent")
    assert timers.next_deadline_ms() == 54_999
