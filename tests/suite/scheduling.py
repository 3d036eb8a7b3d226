"""Which worker of pytest-xdist runs what, and when: files side by side, costly rooms on few workers.

Most of these tests wait rather than work, so several workers share a core. One that has started Spark or an Apache
Kafka keeps it for its session; tests that need the same go to the workers that have it. What is measured against the
wall clock is given out last, and waits until every other worker is done (`tests/measured/conftest.py`).
"""

from typing import Any

from xdist.scheduler.loadscope import LoadScopeScheduling

from tests.suite.rooms import MEASURED, WORKERS, computes, room_of, turn_of, unit_of


class RoomScheduling(LoadScopeScheduling):
    """Gives out units of work (files, mostly), long ones first, and a room to as many workers as it may have."""

    def __init__(self, config: Any, log: Any = None) -> None:
        config.option.loadscopereorder = False
        super().__init__(config, log)

    def _split_scope(self, nodeid: str) -> str:
        return unit_of(nodeid)

    def _assign_work_unit(self, node: Any) -> None:
        unit = self._next_for(node)
        if unit is None:
            node.shutdown()
            return
        self.workqueue.move_to_end(unit, last=False)
        super()._assign_work_unit(node)

    def _next_for(self, node: Any) -> str | None:
        computing = computes(self.nodes.index(node), len(self.nodes))
        waiting = sorted(self.workqueue, key=lambda unit: turn_of(unit, computing))
        for unit in waiting:
            room = room_of(unit)
            if room == MEASURED and len(waiting) > 1:
                continue
            hosts = {each for each, units in self.assigned_work.items() if any(room_of(one) == room for one in units)}
            if room is None or node in hosts or len(hosts) < WORKERS[room]:
                return unit
        return None

    def remove_node(self, node: Any) -> str | None:
        """What a worker that died had left is for others, without the test in which it died: that one has failed.

        pytest-xdist gives out anew also what was done of it, and a worker that gets a unit with nothing left to do
        waits for ever.
        """
        left = [
            (unit, [test for test, done in tests.items() if not done])
            for unit, tests in self.assigned_work.pop(node).items()
        ]
        waiting = [(unit, tests) for unit, tests in left if tests]
        if not waiting:
            return None
        died_in = waiting[0][1].pop(0)
        self.workqueue.update((unit, dict.fromkeys(tests, False)) for unit, tests in waiting if tests)
        for other in self.nodes:
            self._reschedule(other)
        return died_in

    def _reschedule(self, node: Any) -> None:
        if node not in self.registered_collections:  # in the place of one that died, and still collecting
            return
        # A worker keeps its last test back until it knows what comes next. To know more than that binds it too early.
        if self.workqueue and not node.shutting_down and self._pending_of(self.assigned_work[node]) > 1:
            return
        super()._reschedule(node)
