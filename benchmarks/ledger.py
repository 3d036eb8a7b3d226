"""What became of every message that was sent, each known by its id."""

import time
from array import array
from typing import Any

from benchmarks.figures import percentile
from benchmarks.payloads import bodies
from benchmarks.scenes import WARM_UP_S
from kclient_quota.certify.driver import id_prefix

_FAR = -1.0


def value_of(message_id: int, size: int, kind: str = "dots") -> bytes:
    """A value that begins with its id; `kind` as in `payloads`."""
    of_kind = bodies(kind, size)
    return id_prefix(message_id) + of_kind[message_id % len(of_kind)]


class Ledger:
    """Who was handed over when, and what became of it."""

    def __init__(self) -> None:
        self.begin_s = time.monotonic()
        self.handed_over = array("d")
        self.calls_s = array("d")
        self.reported = array("d")
        self.failed: list[int] = []
        self.errors: dict[str, int] = {}
        self.longest_throttle_ms = 0.0
        self.request_timeouts = 0

    def next_id(self) -> int:
        """Opens a line for the next message."""
        self.handed_over.append(_FAR)
        self.reported.append(_FAR)
        return len(self.handed_over) - 1

    def accepted(self, message_id: int, called_at_s: float | None = None) -> None:
        """The client's call, begun at `called_at_s`, returned."""
        now_s = self.handed_over[message_id] = time.monotonic()
        if called_at_s is not None:
            self.calls_s.append(now_s - called_at_s)

    def report(self, message_id: int, error: object | None, at_s: float | None = None) -> None:
        """The client said what became of the message: now, or at a time of the clock that told of its hand-over."""
        self.reported[message_id] = time.monotonic() if at_s is None else at_s
        if error is not None:
            self.failed.append(message_id)
            kind = str(error).split(":", maxsplit=1)[0][:80]
            self.errors[kind] = self.errors.get(kind, 0) + 1

    def throttled(self, throttle_ms: float) -> None:
        """The client heard of a throttle time."""
        self.longest_throttle_ms = max(self.longest_throttle_ms, throttle_ms)

    def summary(self) -> dict[str, Any]:
        """Figures of the run; latencies are of messages that were delivered."""
        failed = set(self.failed)
        latencies = [
            max(0.0, done - handed) * 1000
            for message_id, (handed, done) in enumerate(zip(self.handed_over, self.reported, strict=True))
            if _FAR not in {done, handed} and message_id not in failed
        ]
        return {
            "handed_over": len(self.handed_over),
            "acknowledged": sum(done != _FAR for done in self.reported) - len(failed),
            "failed": len(failed),
            "unreported": sum(done == _FAR for done in self.reported),
            "failed_ids": sorted(failed),
            "errors": self.errors,
            "latency_p50_ms": percentile(latencies, 0.50),
            "latency_p99_ms": percentile(latencies, 0.99),
            "latency_max_ms": max(latencies, default=None),
            "in_call_p50_ms": self._of_calls(0.50),
            "in_call_p99_ms": self._of_calls(0.99),
            "steady_p99_ms": self._steady_p99_ms(failed),
            "messages_per_s": self._steady_rate(failed),
        }

    def _of_calls(self, share: float) -> float | None:
        found = percentile(self.calls_s, share)
        return None if found is None else found * 1000

    def _steady_p99_ms(self, failed: set[int]) -> float | None:
        """The 99th percentile of what messages took that were handed over after the warm-up."""
        from_s = self.begin_s + WARM_UP_S
        found = [
            (done - handed) * 1000
            for message_id, (handed, done) in enumerate(zip(self.handed_over, self.reported, strict=True))
            if handed >= from_s and done != _FAR and message_id not in failed
        ]
        return percentile(found, 0.99)

    def _steady_rate(self, failed: set[int]) -> float | None:
        """Deliveries a second from the end of the warm-up to the last call."""
        begin_s, end_s = self.begin_s + WARM_UP_S, max(self.handed_over, default=0.0)
        if end_s <= begin_s + 1:
            return None
        good = sum(begin_s <= at_s < end_s for message_id, at_s in enumerate(self.reported) if message_id not in failed)
        return good / (end_s - begin_s)
