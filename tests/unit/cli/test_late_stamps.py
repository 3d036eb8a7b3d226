"""What is no sign that the clock which stamps records is behind."""

from types import SimpleNamespace
from typing import Any

import pytest

from kclient_quota.operate.late_stamps import LateStamps
from kclient_quota.testing.clock import ManualClock

WALL_MS = 1_800_000_000_000
NONE_MS = -1
"""The stamp of a record without one."""


def record_at(offset: int) -> Any:
    return SimpleNamespace(topic=lambda: "pushes", partition=lambda: 0, offset=lambda: offset)


@pytest.mark.parametrize(
    ("slept_ms", "wall_went_ms", "stamp_ms", "warns"),
    [
        pytest.param(1_000, 1_000, WALL_MS - 90_000, True, id="it is behind"),
        pytest.param(1_000, 1_000, NONE_MS, False, id="none"),
        pytest.param(1_000, 600_000, WALL_MS + 5_000, False, id="this machine was suspended"),
        pytest.param(1_000, 121_000, WALL_MS + 1_000, False, id="this machine's was put ahead"),
        pytest.param(700_000, -100_000, WALL_MS - 200_000, False, id="this machine's was put back"),
    ],
)
def test_only_what_was_written_after_the_end_had_been_reached_tells(
    slept_ms: int, wall_went_ms: int, stamp_ms: int, warns: bool, caplog: pytest.LogCaptureFixture
) -> None:
    clock, wall = ManualClock(0), [WALL_MS]
    consumer: Any = SimpleNamespace(get_watermark_offsets=lambda _partition, cached: (0, 8) if cached else None)
    stamps = LateStamps(consumer, clock, lambda: wall[0])
    stamps.end(record_at(7))
    clock.sleep_ms(slept_ms)
    wall[0] += wall_went_ms
    stamps.record(record_at(7), stamp_ms)
    assert bool(caplog.records) is warns
