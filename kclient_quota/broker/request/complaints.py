"""What a broker logs of clients that send it nonsense, or ask for what its disk refuses: a few lines a minute."""

from kclient_telemetry import logger_of

_PER_ADDRESS = 10
_PER_BROKER = 100
_WINDOW_MS = 60_000

_LOG = logger_of(__name__)


class Complaints:
    """Counts the lines of each address and of all together, from the first one on for a minute."""

    def __init__(self) -> None:
        self._began_ms: int | None = None
        self._all = 0
        self._of: dict[str, int] = {}

    def may(self, broker_id: int, address: str, now_ms: int) -> bool:
        """Whether one more line about a client is to be logged."""
        if self._began_ms is None or now_ms - self._began_ms >= _WINDOW_MS:
            self._began_ms, self._all = now_ms, 0
            self._of.clear()
        said = self._of.get(address, 0)
        if self._all >= _PER_BROKER or said > _PER_ADDRESS:
            return False
        self._all += 1
        self._of[address] = said + 1
        if said == _PER_ADDRESS:
            _LOG.warning("broker %s: more of what %s does wrong is not logged within this minute", broker_id, address)
        return said < _PER_ADDRESS


class Refusals:
    """Counts the requests that the disk is in the way of, and says of each kind of error once a minute how many."""

    def __init__(self) -> None:
        self._of: dict[int | None, tuple[int, int]] = {}

    def add(self, broker_id: int, error: OSError, now_ms: int) -> None:
        """One more is refused."""
        said_ms, unsaid = self._of.get(error.errno, (None, 0))
        if said_ms is not None and now_ms - said_ms < _WINDOW_MS:
            self._of[error.errno] = said_ms, unsaid + 1
            return
        self._of[error.errno] = now_ms, 0
        what = f"{unsaid + 1} more requests, which are refused" if unsaid else "a request, which is refused"
        _LOG.error("broker %s: the disk is in the way of %s: %s", broker_id, what, error)
