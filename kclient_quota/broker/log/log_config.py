"""What a partition's log is told to do, and what it answers to a batch."""

from dataclasses import dataclass

from kclient_quota.wire.error_codes import ErrorCode

NO_TIMESTAMP = -1
UNLIMITED_MS = 9_223_372_036_854_775_807
AFTER_MAX_MS = 3_600_000
"""Kafka's default of `message.timestamp.after.max.ms`."""
FIRST_DATE_MS = 1_000_000_000_000


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


@dataclass(frozen=True, slots=True)
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
        needs_keys: Kafka's `cleanup.policy` contains `compact`.
    """

    max_message_bytes: int = 1_048_588
    uses_log_append_time: bool = False
    retention_bytes: int = -1
    retention_ms: int = -1
    segment_bytes: int = 1_073_741_824
    before_max_ms: int = UNLIMITED_MS
    after_max_ms: int | None = None
    producer_expiration_ms: int = 86_400_000
    needs_keys: bool = False

    def timestamps(self, now_ms: int) -> tuple[int, int]:
        """The earliest and the latest timestamp that a producer may give a record."""
        if self.uses_log_append_time:
            return -UNLIMITED_MS, UNLIMITED_MS
        after_ms = self.after_max_ms
        if after_ms is None:
            # a clock that a test moves by hand from 0 on says nothing of dates
            after_ms = UNLIMITED_MS if now_ms < FIRST_DATE_MS else AFTER_MAX_MS
        return now_ms - self.before_max_ms, now_ms + after_ms
