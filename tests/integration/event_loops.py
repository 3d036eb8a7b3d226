"""Event loops for tests: they run in a thread, or stand still, as they are told."""

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from typing import Any

WITHIN_S = 30


class Loop:
    """An event loop that runs in a thread, or stands still, as it is told."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread: threading.Thread | None = None

    def go(self) -> None:
        """Run from now on."""
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()

    def stand(self) -> None:
        """Run no more, with all tasks where they are."""
        if self._thread is not None:
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join(WITHIN_S)
            self._thread = None

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        """What comes of this in the loop, which stands or goes afterwards as before."""
        if self._thread is None:
            return self.loop.run_until_complete(asyncio.wait_for(work, WITHIN_S))
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(WITHIN_S)


def made(*, goes: bool) -> Iterator[Loop]:
    """One, which is closed in the end."""
    loop = Loop()
    if goes:
        loop.go()
    yield loop
    loop.stand()
    for task in asyncio.all_tasks(loop.loop):
        task.cancel()
    loop.loop.run_until_complete(asyncio.sleep(0.01))
    loop.loop.close()
