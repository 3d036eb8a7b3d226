"""When who reads a topic of pushes has read what was there, by a clock that is moved by hand."""

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError

from kclient_quota.operate.topic_receiver import Sink, TopicReceiver
from kclient_quota.testing.clock import ManualClock

POLL_MS = 200
IDLE_MS = 1_000


class Script:
    """A consumer whose group takes its time, and a partition of so many records."""

    def __init__(self, clock: ManualClock, *, joins_ms: int, first_ms: int, records: int, tells_end: bool) -> None:
        self.clock, self.joins_ms, self.first_ms = clock, joins_ms, first_ms
        self.left, self.records, self.tells_end = records, records, tells_end

    def is_joined(self) -> bool:
        return self.clock.now_ms() >= self.joins_ms

    def assignment(self) -> list[Any]:
        return [SimpleNamespace(topic="t", partition=0)] if self.is_joined() else []

    def get_watermark_offsets(self, _partition: Any, *, cached: bool) -> tuple[int, int]:
        assert cached
        return (0, self.records) if self.clock.now_ms() >= self.first_ms else (-1001, -1001)

    def poll(self, _timeout_s: float) -> Any:
        self.clock.sleep_ms(POLL_MS)
        if self.clock.now_ms() < self.first_ms:
            return None
        if not self.left:
            return message(self.records, KafkaError(KafkaError._PARTITION_EOF)) if self.tells_end else None
        self.left -= 1
        return message(self.records - self.left - 1)

    def commit(self, **_offsets: Any) -> None:
        pass


def message(offset: int, error: KafkaError | None = None) -> Any:
    told = {"error": error, "topic": "t", "partition": 0, "offset": offset, "timestamp": (0, 0), "value": b""}
    return SimpleNamespace(**{name: lambda value=value: value for name, value in told.items()})


def run(**script: Any) -> tuple[int, int]:
    """How many records were read, and when it ended."""
    clock = ManualClock(0)
    consumer: Any = Script(clock, **script)
    receiver = TopicReceiver(consumer, [Sink(lambda _: None, lambda: (0, 0))], clock, consumer.is_joined)
    receiver.run(lambda: False, idle_ms=IDLE_MS)
    return receiver.received.records, clock.now_ms()


@pytest.mark.parametrize("tells_end", [True, False], ids=["told of its end", "always written to"])
@pytest.mark.parametrize(("joins_ms", "first_ms"), [(0, 0), (3_000, 3_000), (0, 5_000), (3_000, 9_000)])
def test_it_is_not_idle_before_it_has_read_what_was_there(joins_ms: int, first_ms: int, tells_end: bool) -> None:
    read, ended_ms = run(joins_ms=joins_ms, first_ms=first_ms, records=20, tells_end=tells_end)
    assert read == 20
    assert ended_ms <= first_ms + 20 * POLL_MS + IDLE_MS + POLL_MS


def test_an_empty_partition_is_read_at_once() -> None:
    assert run(joins_ms=0, first_ms=400, records=0, tells_end=True) == (0, IDLE_MS)


def test_a_group_that_never_begins_is_not_waited_for_for_ever() -> None:
    assert run(joins_ms=10**9, first_ms=10**9, records=1, tells_end=True) == (0, 60_000)
