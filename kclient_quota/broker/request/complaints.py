"""What a broker logs of clients that send it nonsense: a few lines a minute, however much they send."""

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
