"""What waits for the disk itself does so in a thread of its own, so that nobody who asks the broker waits with it."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from kclient_telemetry import logger_of

_LOG = logger_of(__name__)


class WriteBack:
    """Does one thing after the other, in the order in which they were given; its thread begins with the first.

    However many there are, who gives one does not wait: what is given should hold little, and no file open.
    """

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "kclient-quota-disk")
        self._newest: Future[None] | None = None
        self._is_closed = False

    def later(self, work: Callable[[], None]) -> None:
        """Do this once what was given before is done, or at once after `close`; an OSError of it is logged."""
        if self._is_closed:
            _done(work)
            return
        self._newest = self._thread.submit(_done, work)

    def wait(self) -> None:
        """Until everything is done."""
        if self._newest is not None:
            self._newest.result()

    def close(self) -> None:
        """Do what is left."""
        self._thread.shutdown()
        self._is_closed = True


def _done(work: Callable[[], None]) -> None:
    try:
        work()
    except OSError as error:
        _LOG.error("data could not be synced: %s", error)
