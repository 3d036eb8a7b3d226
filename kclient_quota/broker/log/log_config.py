"""What a partition's log is told to do, and what it answers to a batch."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Self

from kclient_quota.wire.error_codes import ErrorCode

NO_TIMESTAMP = -1
UNLIMITED_MS = 9_223_372_036_854_775_807
AFTER_MAX_MS = 3_600_000
"""Kafka's default of `message.timestamp.after.max.ms`."""
FIRST_DATE_MS = 1_000_000_000_000

LOG_KEYS: Final = {
    "cleanup.policy": "log.cleanup.policy",
    "delete.retention.ms": "log.cleaner.delete.retention.ms",
    "max.compaction.lag.ms": "log.cleaner.max.compaction.lag.ms",
    "max.message.bytes": "message.max.bytes",
    "message.timestamp.after.max.ms": "log.message.timestamp.after.max.ms",
    "message.timestamp.before.max.ms": "log.message.timestamp.before.max.ms",
    "message.timestamp.type": "log.message.timestamp.type",
    "min.cleanable.dirty.ratio": "log.cleaner.min.cleanable.ratio",
    "min.compaction.lag.ms": "log.cleaner.min.compaction.lag.ms",
    "retention.bytes": "log.retention.bytes",
    "retention.ms": "log.retention.ms",
    "segment.bytes": "log.segment.bytes",
}
"""Topic keys that logs obey, and the broker's keys of their defaults."""
OTHER_LOG_KEYS: Final = {"segment.ms": "log.roll.ms", "producer.id.expiration.ms": "producer.id.expiration.ms"}
"""The same, where one of the two has no default or does not exist."""


@dataclass(frozen=True, slots=True)
class Appended:
    """What became of a batch.

    Attributes:
        error: why it was refused, or NONE.
        base_offset: where its first record is, -1 when refused.
        log_append_time_ms: the time given to its records, -1 where they keep their own.
        error_message: the reason in words, or None.
        record_errors: index in the batch and reason, of each record that is to blame.
    """

    error: ErrorCode
    base_offset: int = -1
    log_append_time_ms: int = NO_TIMESTAMP
    error_message: str | None = None
    record_errors: tuple[tuple[int, str], ...] = ()


@dataclass(frozen=True)
class LogConfig:
    """A topic's configuration, as far as its logs obey it.

    Attributes:
        max_message_bytes: Kafka's `max.message.bytes`, of a whole batch.
        uses_log_append_time: Kafka's `message.timestamp.type` is `LogAppendTime`.
        retention_bytes: Kafka's `retention.bytes`: whole segments are dropped beyond it; -1 keeps everything.
        retention_ms: Kafka's `retention.ms`: segments all of whose records are older are dropped; -1 keeps everything.
        segment_bytes: Kafka's `segment.bytes`; what is larger than a segment of the pool changes nothing.
        before_max_ms: Kafka's `message.timestamp.before.max.ms`.
        after_max_ms: Kafka's `message.timestamp.after.max.ms`, None while nobody has set it.
        producer_expiration_ms: Kafka's `producer.id.expiration.ms`.
        is_compacted: Kafka's `cleanup.policy` contains `compact`: records need keys, and the newest of each is kept.
        is_only_compacted: it does not contain `delete`: nobody may delete records by their offsets.
        segment_ms: Kafka's `segment.ms`, by the times of records; of compacted topics no more than
            `max.compaction.lag.ms`.
        dirty_ratio: Kafka's `min.cleanable.dirty.ratio`.
        delete_retention_ms: Kafka's `delete.retention.ms`: for so long compaction keeps records without a value.
        min_lag_ms: Kafka's `min.compaction.lag.ms`: for so long it keeps every record.
        max_lag_ms: Kafka's `max.compaction.lag.ms`.
    """

    max_message_bytes: int = 1_048_588
    uses_log_append_time: bool = False
    retention_bytes: int = -1
    retention_ms: int = -1
    segment_bytes: int = 1_073_741_824
    before_max_ms: int = UNLIMITED_MS
    after_max_ms: int | None = None
    producer_expiration_ms: int = 86_400_000
    is_compacted: bool = False
    is_only_compacted: bool = False
    segment_ms: int = UNLIMITED_MS
    dirty_ratio: float = 0.5
    delete_retention_ms: int = 86_400_000
    min_lag_ms: int = 0
    max_lag_ms: int = UNLIMITED_MS

    @classmethod
    def of(cls, values: Mapping[str, str | None]) -> Self:
        """From what is configured by the topic's keys; None or nothing is the default."""
        given = {key: value for key, value in values.items() if value is not None}

        def number(key: str, default: int) -> int:
            return int(given.get(key, default))

        after_ms = given.get("message.timestamp.after.max.ms")
        policy = given.get("cleanup.policy", "delete")
        is_compacted, deletes = "compact" in policy, "delete" in policy
        max_lag_ms = number("max.compaction.lag.ms", UNLIMITED_MS)
        segment_ms = number("segment.ms", UNLIMITED_MS)
        return cls(
            max_message_bytes=number("max.message.bytes", cls.max_message_bytes),
            retention_bytes=number("retention.bytes", cls.retention_bytes) if deletes else -1,
            retention_ms=number("retention.ms", cls.retention_ms) if deletes else -1,
            segment_bytes=number("segment.bytes", cls.segment_bytes),
            before_max_ms=number("message.timestamp.before.max.ms", UNLIMITED_MS),
            after_max_ms=None if after_ms is None else int(after_ms),
            uses_log_append_time=given.get("message.timestamp.type") == "LogAppendTime",
            producer_expiration_ms=number("producer.id.expiration.ms", cls.producer_expiration_ms),
            is_compacted=is_compacted,
            is_only_compacted=is_compacted and not deletes,
            segment_ms=min(segment_ms, max_lag_ms) if is_compacted else segment_ms,
            dirty_ratio=float(given.get("min.cleanable.dirty.ratio", cls.dirty_ratio)),
            delete_retention_ms=number("delete.retention.ms", cls.delete_retention_ms),
            min_lag_ms=number("min.compaction.lag.ms", 0),
            max_lag_ms=max_lag_ms,
        )

    def timestamps(self, now_ms: int) -> tuple[int, int]:
        """The earliest and the latest timestamp that a producer may give a record."""
        if self.uses_log_append_time:
            return -UNLIMITED_MS, UNLIMITED_MS
        after_ms = self.after_max_ms
        if after_ms is None:
            # a clock that a test moves by hand from 0 on says nothing of dates
            after_ms = UNLIMITED_MS if now_ms < FIRST_DATE_MS else AFTER_MAX_MS
        return now_ms - self.before_max_ms, now_ms + after_ms
