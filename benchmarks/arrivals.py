"""What came to a consumer, and when."""

import time
from typing import Any

from benchmarks.figures import gaps_s, wait_s
from benchmarks.scenes import WARM_UP_S
from kclient_quota.certify.driver import id_of


class Arrivals:
    """Ids and times of the messages that came, and what the client said about a stall."""

    def __init__(self, begin_ms: int, seconds: float) -> None:
        self.begin_ms = begin_ms
        self.end_ms = begin_ms + int(seconds * 1000)
        self.times_ms: list[int] = []
        self.ids: dict[int, set[int]] = {}
        self.payload = 0
        self.steady_payload = 0
        self.longest_throttle_ms = 0.0
        self.stall_s: float | None = None
        self.stall_text: str | None = None

    def open(self) -> bool:
        """Whether the run still goes on."""
        return now_ms() < self.end_ms

    def add(self, partition: int, value: bytes) -> None:
        """A message reached the application."""
        self.enter(now_ms(), partition, id_of(value), len(value))

    def enter(self, at_ms: int, partition: int, message_id: int, length: int) -> None:
        """A message reached the application at that time."""
        self.times_ms.append(at_ms)
        self.ids.setdefault(partition, set()).add(message_id)
        self.payload += length
        if at_ms >= self.begin_ms + WARM_UP_S * 1000:
            self.steady_payload += length

    def stalled(self, text: str) -> None:
        """The client said that nothing will ever come."""
        if self.stall_s is None:
            self.stall_s = (now_ms() - self.begin_ms) / 1000
            self.stall_text = text

    def summary(self) -> dict[str, Any]:
        """Figures of the run."""
        steady_ms = min(self.begin_ms + WARM_UP_S * 1000, self.end_ms)
        waits = gaps_s(self.times_ms, steady_ms, self.end_ms)
        return {
            "begin_ms": self.begin_ms,
            "end_ms": self.end_ms,
            "messages": len(self.times_ms),
            "payload": self.payload,
            "steady_payload": self.steady_payload,
            "repeated": len(self.times_ms) - sum(map(len, self.ids.values())),
            "skipped": sum(max(ids) + 1 - len(ids) for ids in self.ids.values()),
            "first_message_s": (self.times_ms[0] - self.begin_ms) / 1000 if self.times_ms else None,
            "longest_gap_s": max(waits),
            "wait_p50_ms": wait_s(waits, 0.50) * 1000,
            "wait_p99_ms": wait_s(waits, 0.99) * 1000,
            "wait_max_ms": max(waits) * 1000,
            "longest_throttle_ms": self.longest_throttle_ms or None,
            "stall_reported_s": self.stall_s,
            "stall_text": self.stall_text,
        }


def now_ms() -> int:
    """The wall clock, as brokers' time-stamps are."""
    return time.time_ns() // 1_000_000
