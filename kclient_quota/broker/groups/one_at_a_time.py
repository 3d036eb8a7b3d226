"""Requests to one group that are done in steps, one request after the other."""

from collections import deque

from kclient_quota.broker.groups.in_steps import MadeT, Steps
from kclient_quota.broker.request.context import Scheduler
from kclient_quota.broker.request.promise import Turn


class OneAtATime:
    """Lets others have their turn between the steps of a request, but no other request to its group.

    Args:
        scheduler: whose turns.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._waiting: dict[str, deque[Turn]] = {}

    async def done(self, group_id: str, steps: Steps[MadeT]) -> MadeT:
        """What comes of the steps; at once, if there is one only and nobody is before it."""
        waiting = self._waiting.get(group_id)
        if waiting is None:
            try:
                next(steps)
            except StopIteration as end:
                made: MadeT = end.value
                return made
            self._waiting[group_id] = deque()
        else:
            # it comes to its turn even when its client is gone: who hands over need not ask
            mine = Turn()
            waiting.append(mine)
            await mine
        try:
            while True:
                await self._others_turn()
                next(steps)
        except StopIteration as end:
            after: MadeT = end.value
            return after
        finally:
            self._hand_over(group_id)

    def _hand_over(self, group_id: str) -> None:
        waiting = self._waiting[group_id]
        if waiting:
            waiting.popleft().resolve(None)
        else:
            del self._waiting[group_id]

    async def _others_turn(self) -> None:
        turn = Turn()
        self._scheduler.call_at(self._scheduler.now_ms(), lambda: turn.resolve(None))
        await turn
