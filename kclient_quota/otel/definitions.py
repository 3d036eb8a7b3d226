"""Which of a client's metrics there are: for instruments, and for what is drawn and warned of out of them.

Kafka's own metrics have the names that OpenTelemetry's Java agent gives them (`kafka.producer.record_queue_time_avg`,
attribute `client-id`), so that dashboards made for Java clients show ours. What Kafka has no name for begins with
`kafka.client.quota`; OpenTelemetry's messaging conventions (attributes `messaging.*`) say the rest.
"""

from dataclasses import dataclass
from typing import Final

GAUGE: Final = "gauge"
COUNTER: Final = "counter"
PRODUCER: Final = "producer"
CONSUMER: Final = "consumer"


@dataclass(frozen=True, slots=True)
class Definition:
    """One metric of Kafka's.

    Attributes:
        kafka_name: such as "produce-throttle-time-avg".
        kind: GAUGE or COUNTER.
        unit: as UCUM writes it.
        description: one sentence.
        clients: PRODUCER, CONSUMER or both.
    """

    kafka_name: str
    kind: str
    unit: str
    description: str
    clients: tuple[str, ...]

    def otel_name(self, client: str) -> str:
        """The instrument's name, such as `kafka.producer.produce_throttle_time_avg`."""
        return f"kafka.{client}.{self.kafka_name.replace('-', '_')}"


def _throttle(prefix: str, clients: tuple[str, ...]) -> tuple[Definition, ...]:
    # A broker tells one throttle time, of whichever quota: the names say the same, both are Kafka's.
    what = "all responses of the last minute, by any quota"
    return (
        Definition(f"{prefix}-throttle-time-avg", GAUGE, "ms", f"Mean throttle time of {what}", clients),
        Definition(f"{prefix}-throttle-time-max", GAUGE, "ms", f"Longest throttle time of {what}", clients),
    )


def _ever(prefix: str, clients: tuple[str, ...]) -> tuple[Definition, ...]:
    return (
        Definition(f"{prefix}-throttle-time-total", COUNTER, "ms", "Throttle times ever, added up", clients),
        Definition(f"{prefix}-throttle-count", COUNTER, "{response}", "Throttled responses ever", clients),
        Definition(f"{prefix}-throttle-time-last", GAUGE, "ms", "The last throttle time", clients),
    )


_P, _C, _BOTH = (PRODUCER,), (CONSUMER,), (PRODUCER, CONSUMER)

KAFKA: Final = (
    *_throttle("produce", _P),
    *_ever("produce", _P),
    *_throttle("fetch", _C),
    *_ever("fetch", _C),
    *_throttle("request", _BOTH),
    Definition("quota-wait-time-total", COUNTER, "ms", "Time that calls have waited for a quota", _BOTH),
    Definition("record-queue-time-avg", GAUGE, "ms", "Mean time from produce() to the batch", _P),
    Definition("record-queue-time-max", GAUGE, "ms", "Longest time from produce() to the batch", _P),
    Definition("batch-size-avg", GAUGE, "By", "Mean size of a batch", _P),
    Definition("batch-size-max", GAUGE, "By", "Largest batch", _P),
    Definition("records-per-request-avg", GAUGE, "{record}", "Mean number of records in a request", _P),
    Definition("records-lag", GAUGE, "{record}", "Records behind the end of a partition", _C),
    Definition("records-lag-max", GAUGE, "{record}", "Records behind the end of any partition", _C),
    Definition("last-poll-seconds-ago", GAUGE, "s", "Since the application has polled", _C),
    Definition("poll-headroom-ms", GAUGE, "ms", "Until max.poll.interval.ms is over", _C),
    Definition("poll-idle-ratio-avg", GAUGE, "1", "Part of the time that is spent in poll()", _C),
    Definition("fetch-stalled-brokers", GAUGE, "{broker}", "Brokers of which nothing can come under the quota", _C),
)
"""What `metrics()` of a client may have."""


@dataclass(frozen=True, slots=True)
class StateDefinition:
    """One metric out of `quota_state()` or of the client itself; attributes as OpenTelemetry has them."""

    name: str
    kind: str
    unit: str
    description: str


LIMIT: Final = StateDefinition(
    "kafka.client.quota.limit", GAUGE, "By/s", "Bytes per second that the quota allows this client on a broker"
)
RATE: Final = StateDefinition(
    "kafka.client.quota.rate", GAUGE, "By/s", "Bytes per second that the client aims at on a broker"
)
USED: Final = StateDefinition(
    "kafka.client.quota.io", COUNTER, "By", "Bytes that the client has let through to a broker"
)
OUTSTANDING: Final = StateDefinition(
    "kafka.client.quota.outstanding", GAUGE, "By", "Bytes let through whose outcome is not known"
)
WAITING: Final = StateDefinition("kafka.client.quota.waiting", GAUGE, "{call}", "Calls that wait for the quota now")
THROTTLED: Final = StateDefinition(
    "kafka.client.quota.throttle.remaining", GAUGE, "ms", "Until the broker's last throttle ends"
)
QUEUE: Final = StateDefinition("kafka.producer.queue.messages", GAUGE, "{message}", "Messages without an outcome yet")
STATE: Final = (LIMIT, RATE, USED, OUTSTANDING, WAITING, THROTTLED, QUEUE)
