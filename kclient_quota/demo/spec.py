"""What a demo worker is told and what it tells back: plain JSON over pipes, one object a line."""

import json
from dataclasses import asdict, dataclass, field
from typing import Any

PLAIN = "plain"
TUNED = "tuned"
WRAPPED = "wrapped"
FLAVOURS = (PLAIN, TUNED, WRAPPED)


@dataclass(frozen=True, slots=True)
class WorkSpec:
    """One worker's job.

    Attributes:
        role: "produce", "consume" or "transform".
        flavour: "plain" (confluent_kafka as shipped), "tuned" (by hand, for this quota) or "wrapped" (ours).
        conf: the client configuration.
        topic: where to read from (consume, transform) or write to (produce).
        output_topic: where a transform writes to.
        seconds: how long to work.
        messages: how many messages there are to produce or to read; the work ends early when they are done.
        message_bytes: payload of one generated message.
        input_file: a file whose lines are sent instead of generated messages, or None.
        producer_conf: configuration of a transform's producer.
    """

    role: str
    flavour: str
    conf: dict[str, Any]
    topic: str
    seconds: float
    messages: int
    message_bytes: int = 1_000
    output_topic: str = ""
    input_file: str | None = None
    producer_conf: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> str:
        """One line."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "WorkSpec":
        """The inverse of `to_json`."""
        return cls(**json.loads(text))


@dataclass(frozen=True, slots=True)
class Sample:
    """Where a worker stands; counters run from the start of its work.

    Attributes:
        at_ms: milliseconds since the work began.
        done: messages acknowledged (produce), received (consume) or processed and acknowledged (transform).
        payload_bytes: their payload bytes.
        failed: messages that the client reported as failed.
        throttle_ms: the longest throttle time seen since the last sample.
        latency_ms: the longest wait since the last sample: from `produce()` returning to its report, or between
            two messages received.
        rebalances: how often the group took the partitions away (transform).
        waited_ms: how long the application has waited inside `produce()`, and for room in the client's queue.
    """

    at_ms: int
    done: int
    payload_bytes: int
    failed: int
    throttle_ms: int
    latency_ms: int
    rebalances: int = 0
    waited_ms: int = 0


@dataclass(frozen=True, slots=True)
class Outcome:
    """A worker's last word.

    Attributes:
        done: as in Sample.
        payload_bytes: as in Sample.
        failed: as in Sample.
        pending: messages that neither succeeded nor failed before the worker stopped.
        oldest_pending_ms: how long the oldest of those has waited.
        elapsed_ms: how long the work took.
        latencies_ms: p50, p99 and the longest of every single wait.
        throttle_max_ms: the longest throttle time.
        rebalances: as in Sample.
        waited_ms: as in Sample.
        acknowledged_ids: first and one past the last of every run of acknowledged message ids (produce).
    """

    done: int
    payload_bytes: int
    failed: int
    pending: int
    elapsed_ms: int
    latencies_ms: tuple[int, int, int]
    throttle_max_ms: int
    rebalances: int = 0
    waited_ms: int = 0
    oldest_pending_ms: int = 0
    acknowledged_ids: tuple[tuple[int, int], ...] = ()


def sample_line(sample: Sample) -> str:
    """A sample as one line of JSON."""
    return json.dumps({"sample": asdict(sample)})


def outcome_line(outcome: Outcome) -> str:
    """An outcome as one line of JSON."""
    return json.dumps({"outcome": asdict(outcome)})


def parse_line(line: str) -> Sample | Outcome | None:
    """What a worker's line says, or None for anything else it printed."""
    try:
        told = json.loads(line)
    except ValueError:
        return None
    if not isinstance(told, dict):
        return None
    if "sample" in told:
        return Sample(**told["sample"])
    if "outcome" in told:
        fields = told["outcome"]
        fields["latencies_ms"] = tuple(fields["latencies_ms"])
        fields["acknowledged_ids"] = tuple(tuple(run) for run in fields["acknowledged_ids"])
        return Outcome(**fields)
    return None


def runs_of(ids: list[int]) -> tuple[tuple[int, int], ...]:
    """Sorted ids as runs (first, one past last)."""
    runs: list[tuple[int, int]] = []
    for number in sorted(set(ids)):
        if runs and runs[-1][1] == number:
            runs[-1] = (runs[-1][0], number + 1)
        else:
            runs.append((number, number + 1))
    return tuple(runs)
