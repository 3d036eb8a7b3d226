"""Forwards pushes to an OpenTelemetry collector: queue, batches, retries, and an account of every push."""

import random
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from kclient_telemetry import logger_of
from kclient_telemetry.receiver.fanout import ReceivedPush
from kclient_telemetry.receiver.otlp_senders import Outcome, Sender, Status, in_one_line

log = logger_of(__name__)

QUEUE_BYTES = 64 * 1024 * 1024
BATCH_BYTES = 1024 * 1024
LINGER_MS = 200
RETRY_FIRST_MS = 500
RETRY_LONGEST_MS = 30_000
GIVE_UP_AFTER_MS = 300_000
LONGEST_ASKED_MS = 3_600_000
_TELL_EVERY = 1_000
_TELL_EVERY_MS = 60_000


@dataclass(frozen=True, slots=True)
class ExportCounters:
    """Where every push has gone: `received` = `exported` + the three kinds of dropped + what is still queued.

    Attributes:
        received: pushes handed over.
        exported: pushes the collector took.
        dropped_queue_full: pushes that found no room.
        dropped_refused: pushes the collector refused for good.
        dropped_expired: pushes given up after too many tries, or at close.
        requests: exports tried, repetitions included.
        retries: repetitions.
        rejected_points: points the collector did not want out of pushes it took.
        queued_pushes: pushes waiting or under way.
        queued_bytes: their size.
        undelivered: those of `dropped_expired` that only closing has kept from being tried again.
    """

    received: int = 0
    exported: int = 0
    dropped_queue_full: int = 0
    dropped_refused: int = 0
    dropped_expired: int = 0
    requests: int = 0
    retries: int = 0
    rejected_points: int = 0
    queued_pushes: int = 0
    queued_bytes: int = 0
    undelivered: int = 0


class _Losses:
    """Tells of what is lost, a line a minute for each kind: who refuses one push for its token refuses all.

    Pushes; of those that were taken, points. What is lost within that minute is counted in the next line, or the last.
    """

    def __init__(self) -> None:
        self._untold: Counter[Status] = Counter()
        self._why: dict[Status, str] = {}
        self._told_ms: dict[Status, int] = {}

    def add(self, lost: int, outcome: Outcome) -> None:
        """So many more, for this reason."""
        status, now_ms = outcome.status, _now_ms()
        self._untold[status] += lost
        self._why[status] = outcome.detail
        if status not in self._told_ms or now_ms - self._told_ms[status] >= _TELL_EVERY_MS:
            self._told_ms[status] = now_ms
            self._tell(status)

    def tell_rest(self) -> None:
        """Whatever no line has counted yet."""
        for status in tuple(self._untold):
            self._tell(status)

    def _tell(self, status: Status) -> None:
        lost, why = self._untold.pop(status), self._why[status]
        if status is not Status.ACCEPTED:
            log.warning("%d pushes of client telemetry are lost, %s: %s", lost, status.value, why)
        elif lost:
            log.warning("%d points are lost, of exports that were taken: %s", lost, why)
        else:  # OTLP has a collector warn so
            log.warning("the collector takes client telemetry, and says: %s", why)


class OtlpExporter:
    """A sink that forwards pushes from a thread of its own; `accept` never waits.

    Pushes are concatenated into larger exports, which protobuf defines as merging them. A batch that the collector
    cannot read, or finds too large, is sent again in halves, so that one bad push takes no other with it; a batch
    that is refused for any other reason is not. When a collector asks to be left alone, it is, with everything.

    Args:
        sender: HTTP or gRPC.
        queue_bytes: most that may wait; what comes on top is dropped and counted.
        batch_bytes: most that goes into one export (a larger push goes alone).
        linger_ms: how long a push may wait for company.
        retry_first_ms: after the first failure; doubled up to `retry_longest_ms`, each time ±50 %.
        give_up_after_ms: a batch that could not be exported for so long is dropped and counted; the time for which the
            collector asks to be left alone (an hour at most) is not part of it.
        uniform: a random number in [0, 1).
        name: of the collector, for the log: there may be several.
    """

    def __init__(
        self,
        sender: Sender,
        *,
        queue_bytes: int = QUEUE_BYTES,
        batch_bytes: int = BATCH_BYTES,
        linger_ms: int = LINGER_MS,
        retry_first_ms: int = RETRY_FIRST_MS,
        retry_longest_ms: int = RETRY_LONGEST_MS,
        give_up_after_ms: int = GIVE_UP_AFTER_MS,
        uniform: Callable[[], float] = random.random,
        name: str = "",
    ) -> None:
        self._sender = sender
        self._collector = f"the collector {name}".rstrip()
        self._said_by = f"{name}: " if name else ""
        self._queue_bytes = queue_bytes
        self._batch_bytes = batch_bytes
        self._linger_ms = linger_ms
        self._retry_first_ms = retry_first_ms
        self._retry_longest_ms = retry_longest_ms
        self._give_up_after_ms = give_up_after_ms
        self._uniform = uniform
        self._queue: deque[bytes] = deque()
        self._counters = ExportCounters()
        self._changed = threading.Condition()
        self._close_deadline_ms: int | None = None
        self._is_away = False
        self._losses = _Losses()
        self._cut_off = ""  # what the collector had said of the first that closing has cut off
        self._thread = threading.Thread(target=self._run, name="otlp-exporter", daemon=True)
        self._thread.start()

    @property
    def counters(self) -> ExportCounters:
        """The account so far."""
        with self._changed:
            return self._counters

    def accept(self, push: ReceivedPush) -> None:
        """Queue `push`, or drop and count it when there is no room or the exporter is closed."""
        body = push.enriched
        with self._changed:
            counters = self._counters
            full = counters.queued_bytes + len(body) > self._queue_bytes or self._close_deadline_ms is not None
            self._counters = replace(
                counters,
                received=counters.received + 1,
                dropped_queue_full=counters.dropped_queue_full + full,
                queued_pushes=counters.queued_pushes + (not full),
                queued_bytes=counters.queued_bytes + (0 if full else len(body)),
            )
            if not full:
                self._queue.append(body)
                if len(self._queue) == 1 or self._worth_sending():
                    self._changed.notify_all()
        if full and counters.dropped_queue_full % _TELL_EVERY == 0:
            waiting = counters.queued_bytes
            log.warning("client telemetry is dropped: %d bytes already wait for %s", waiting, self._collector)

    def complete(self, timeout_ms: int) -> None:
        """Wait until all that is queued has been exported, refused or given up, `timeout_ms` at most."""
        with self._changed:
            self._changed.wait_for(lambda: self._closing() or not self._counters.queued_pushes, timeout_ms / 1000)

    def close(self, timeout_ms: int) -> None:
        """Export what is queued, within `timeout_ms`; drop and count the rest."""
        with self._changed:
            if self._close_deadline_ms is None:
                self._close_deadline_ms = _now_ms() + timeout_ms
            self._changed.notify_all()
        self._thread.join(timeout_ms / 1000)
        self._sender.close()
        if self._thread.is_alive():
            log.warning("client telemetry could not be delivered before closing: %s%s", self._said_by, self.counters)

    def _run(self) -> None:
        while batch := self._next_batch():
            self._deliver(batch)
        self._losses.tell_rest()
        if pushes := self._counters.undelivered:  # a line for all of them: a queue may have been full
            log.warning("%d pushes of client telemetry were not delivered before closing: %s", pushes, self._cut_off)

    def _next_batch(self) -> list[bytes]:
        """Wait for pushes and for more of them, then take as many as an export may hold; empty when closed and done."""
        with self._changed:
            self._changed.wait_for(lambda: self._queue or self._closing())
            self._changed.wait_for(self._worth_sending, self._linger_ms / 1000)
            batch: list[bytes] = []
            size = 0
            while self._queue and (not batch or size + len(self._queue[0]) <= self._batch_bytes):
                size += len(self._queue[0])
                batch.append(self._queue.popleft())
            return batch

    def _worth_sending(self) -> bool:
        return self._closing() or self._counters.queued_bytes >= self._batch_bytes

    def _closing(self) -> bool:
        return self._close_deadline_ms is not None

    def _deliver(self, batch: Sequence[bytes]) -> None:
        outcome = self._export(b"".join(batch))
        if outcome.status is Status.UNREADABLE and len(batch) > 1:
            half = len(batch) // 2
            self._deliver(batch[:half])
            self._deliver(batch[half:])
        else:
            self._account(batch, outcome)

    def _export(self, body: bytes) -> Outcome:
        """Send `body` until it is accepted, refused, or has to be given up."""
        give_up_ms = _now_ms() + self._give_up_after_ms
        delay_ms = self._retry_first_ms
        outcome = self._try(body)
        while outcome.status is Status.RETRY:
            asked_ms = min(outcome.retry_after_ms or 0, LONGEST_ASKED_MS)
            if asked_ms > self._retry_longest_ms:  # a repetition that fails would say so an hour later
                self._tell(replace(outcome, detail=f"{outcome.detail}; it asks to wait for {asked_ms // 1000} s"))
            wait_ms = max(asked_ms, round(delay_ms * (0.5 + self._uniform())))
            give_up_ms += asked_ms
            if not self._pause(wait_ms, give_up_ms):
                is_cut = self._close_deadline_ms is not None and self._close_deadline_ms <= give_up_ms
                return replace(outcome, status=Status.CLOSED) if is_cut else outcome
            delay_ms = min(delay_ms * 2, self._retry_longest_ms)
            outcome = self._try(body, outcome)
            self._tell(outcome)
        self._tell(outcome)
        return outcome

    def _tell(self, outcome: Outcome) -> None:
        """Say once that a collector is away, and once that it is back: pushes may wait for it for a day.

        It is away when a repetition fails, too: what fails once may be no more than a connection that was idle.
        """
        is_away = outcome.status is Status.RETRY
        if is_away is self._is_away or self._closing():
            return
        self._is_away = is_away
        if is_away:
            log.warning("the collector does not take client telemetry, which waits for it: %s", outcome.detail)
        else:
            log.warning("%s answers again", self._collector)

    def _try(self, body: bytes, last: Outcome | None = None) -> Outcome:
        if self._is_closed():  # what the collector has said says more
            return Outcome(Status.CLOSED, last.detail if last else f"{self._said_by}the exporter was closed")
        try:
            sent = self._sender.send(body)
            outcome = replace(sent, detail=in_one_line(sent.detail and self._said_by + sent.detail))
        except Exception as error:  # noqa: BLE001 - whatever a sender raises, the pushes after these go on
            status = Status.CLOSED if self._is_closed() else Status.REFUSED  # a sender that was closed meanwhile raises
            outcome = Outcome(status, in_one_line(f"{self._said_by}{type(error).__name__}: {error}"))
        with self._changed:
            self._counters = replace(
                self._counters,
                requests=self._counters.requests + 1,
                retries=self._counters.retries + (last is not None),
                rejected_points=self._counters.rejected_points + outcome.rejected_points,
            )
        if outcome.detail:
            log.debug("exporting client telemetry: %s: %s", outcome.status.value, outcome.detail)
        return outcome

    def _is_closed(self) -> bool:
        return self._close_deadline_ms is not None and _now_ms() >= self._close_deadline_ms

    def _pause(self, wait_ms: int, give_up_ms: int) -> bool:
        """Wait before a repetition; False when it would come too late. Closing cuts a pause short, once."""
        with self._changed:
            was_closing = self._closing()
            deadline_ms = min(give_up_ms, self._close_deadline_ms or give_up_ms)
            if _now_ms() + wait_ms >= deadline_ms:
                return False
            self._changed.wait_for(lambda: self._closing() and not was_closing, wait_ms / 1000)
        return True

    def _account(self, batch: Sequence[bytes], outcome: Outcome) -> None:
        pushes = len(batch)
        with self._changed:
            counters = self._counters
            self._counters = replace(
                counters,
                exported=counters.exported + pushes * (outcome.status is Status.ACCEPTED),
                dropped_refused=counters.dropped_refused
                + pushes * (outcome.status in {Status.REFUSED, Status.UNREADABLE}),
                dropped_expired=counters.dropped_expired + pushes * (outcome.status in {Status.RETRY, Status.CLOSED}),
                queued_pushes=counters.queued_pushes - pushes,
                queued_bytes=counters.queued_bytes - sum(map(len, batch)),
                undelivered=counters.undelivered + pushes * (outcome.status is Status.CLOSED),
            )
            self._changed.notify_all()  # whoever waits in `complete`
        if outcome.status is Status.ACCEPTED:
            if outcome.rejected_points or outcome.detail:
                self._losses.add(outcome.rejected_points, outcome)
        elif outcome.status is Status.CLOSED:
            self._cut_off = self._cut_off or outcome.detail
        else:
            self._losses.add(pushes, outcome)


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000
