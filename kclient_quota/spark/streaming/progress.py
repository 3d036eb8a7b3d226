"""What a stream has done since it began, added up batch by batch, however many batches."""

import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

LETTERS: Final = "dead_letters"
"""What a stream's progress calls the count of what it could not decode (`DataFrame.observe`)."""

_LAST_WORD_S: Final = 10.0


@dataclass(slots=True)
class Totals:
    """Of one query.

    Attributes:
        rows: read.
        batches: that read any, or wrote any.
        state_rows: most rows that its state held at the end of a batch.
        state_bytes: most bytes of it in memory.
        dropped: rows that came after the watermark had closed their windows, and play no part.
        letters: pushes that could not be decoded.
        bytes: read from a topic by our own source.
        throttle_ms: that brokers throttled its tasks, together.
    """

    rows: int = 0
    batches: int = 0
    state_rows: int = 0
    state_bytes: int = 0
    dropped: int = 0
    letters: int = 0
    bytes: int = 0
    throttle_ms: int = 0

    def add(self, progress: Mapping[str, Any], source: str = "kclient_quota") -> None:
        """Add a batch.

        Args:
            progress: such as one of `query.recentProgress`, as a dictionary.
            source: under which name `kafka.source.observed` has it tell what brokers said.
        """
        self.rows += progress["numInputRows"]
        self.batches += 1
        operators = progress["stateOperators"]
        self.state_rows = max(self.state_rows, sum(each["numRowsTotal"] for each in operators))
        self.state_bytes = max(self.state_bytes, sum(each["memoryUsedBytes"] for each in operators))
        self.dropped += sum(each["numRowsDroppedByWatermark"] for each in operators)
        observed = progress["observedMetrics"]
        self.letters += (observed.get(LETTERS) or {}).get("letters") or 0
        told = observed.get(source) or {}
        self.bytes += told.get("bytes") or 0
        self.throttle_ms += told.get("throttle_ms") or 0

    def told(self) -> str:
        """In words."""
        words = [f"{self.rows} rows read in {self.batches} batches"]
        if self.state_rows:
            words.append(f"state of at most {self.state_rows} rows, {self.state_bytes} bytes")
        if self.throttle_ms:
            words.append(f"brokers throttled its tasks for {self.throttle_ms} ms together")
        if self.letters:
            words.append(f"{self.letters} pushes could not be decoded")
        if self.dropped:
            words.append(f"{self.dropped} rows came too late for their windows and were dropped: raise --late")
        return "; ".join(words)


class Watch(StreamingQueryListener):
    """Adds up what one query of a session does.

    Args:
        name: of the query; no other of the session has the same.

    Attributes:
        totals: so far.
    """

    def __init__(self, name: str) -> None:
        self.totals = Totals()
        self.name = name
        self._run: str | None = None
        self._ended = threading.Event()

    def wait(self) -> Totals:
        """Everything, when the query has ended: what listeners are told comes a little after."""
        self._ended.wait(_LAST_WORD_S)
        return self.totals

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        """Find out which run it is."""
        if event.name == self.name:
            self._run = str(event.runId)

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 - Spark's name
        """A batch is done."""
        if event.progress.name == self.name:
            self.totals.add(json.loads(event.progress.json))

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802 - Spark's name
        """Nothing to tell."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 - Spark's name
        """There is no more to come."""
        if self._run in (None, str(event.runId)):
            self._ended.set()
