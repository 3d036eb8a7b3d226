"""The work itself, the same code for all flavours: `python -m kclient_quota.demo.worker SPEC`.

A process per worker, so that no flavour pays for another's work.
"""

import itertools
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from kclient_quota.clients import KafkaException, PlainConsumer, PlainProducer
from kclient_quota.clients.consumer import Consumer
from kclient_quota.clients.producer import Producer
from kclient_quota.clock import SYSTEM_CLOCK
from kclient_quota.demo.spec import WRAPPED, Outcome, Sample, WorkSpec, outcome_line, runs_of, sample_line

SAMPLE_MS = 250
COMMIT_EVERY = 250
# What is left when the work's time is up gets this long to be answered, then the worker goes.
LAST_FLUSH_S = 1.0


class Tally:
    """Counts of one worker, printed as samples while it works."""

    def __init__(self) -> None:
        self.started_ms = SYSTEM_CLOCK.now_ms()
        self.done = self.payload_bytes = self.failed = self.rebalances = self.waited_ms = 0
        self.throttle_max_ms = 0
        self.latencies_ms: list[int] = []
        self.acknowledged: list[int] = []
        self.pending_since_ms: dict[int, int] = {}
        self._throttle_ms = self._latency_ms = 0
        self._next_sample_ms = self.started_ms

    def elapsed_ms(self) -> int:
        """Milliseconds since the work began."""
        return SYSTEM_CLOCK.now_ms() - self.started_ms

    def throttled(self, event: Any) -> None:
        """The client's throttle_cb: `event.throttle_time` is in seconds."""
        throttle_ms = round(event.throttle_time * 1000)
        self._throttle_ms = max(self._throttle_ms, throttle_ms)
        self.throttle_max_ms = max(self.throttle_max_ms, throttle_ms)

    def waited(self, latency_ms: int) -> None:
        """One wait of which the application would have noticed something."""
        self.latencies_ms.append(latency_ms)
        self._latency_ms = max(self._latency_ms, latency_ms)

    def sample(self, *, force: bool = False) -> None:
        """Print a sample when one is due."""
        now_ms = SYSTEM_CLOCK.now_ms()
        if now_ms < self._next_sample_ms and not force:
            return
        self._next_sample_ms = now_ms + SAMPLE_MS
        at_ms = now_ms - self.started_ms
        line = sample_line(
            Sample(
                at_ms,
                self.done,
                self.payload_bytes,
                self.failed,
                self._throttle_ms,
                self._latency_ms,
                self.rebalances,
                self.waited_ms,
            )
        )
        print(line, flush=True)  # noqa: T201 - the pipe to the demo is this worker's only output
        self._throttle_ms = self._latency_ms = 0

    def outcome(self, pending: int) -> Outcome:
        """The last word."""
        ordered = sorted(self.latencies_ms) or [0]
        return Outcome(
            done=self.done,
            payload_bytes=self.payload_bytes,
            failed=self.failed,
            pending=pending,
            elapsed_ms=self.elapsed_ms(),
            latencies_ms=(ordered[len(ordered) // 2], ordered[int(0.99 * (len(ordered) - 1))], ordered[-1]),
            throttle_max_ms=self.throttle_max_ms,
            rebalances=self.rebalances,
            waited_ms=self.waited_ms,
            oldest_pending_ms=self._oldest_pending_ms(),
            acknowledged_ids=runs_of(self.acknowledged),
        )

    def _oldest_pending_ms(self) -> int:
        return SYSTEM_CLOCK.now_ms() - min(self.pending_since_ms.values()) if self.pending_since_ms else 0


def produce(spec: WorkSpec, tally: Tally) -> int:
    """Send all messages as fast as the client takes them; returns how many are pending at the end."""
    producer = _producer(spec, spec.conf, tally)
    for number, payload in _payloads(spec):
        if tally.elapsed_ms() >= spec.seconds * 1000:
            break
        _send(producer, spec.topic, number, payload, tally, until_ms=int(spec.seconds * 1000))
        tally.sample()
    while len(producer) and tally.elapsed_ms() < spec.seconds * 1000:
        producer.poll(0.1)
        tally.sample()
    return int(producer.flush(LAST_FLUSH_S))


def consume(spec: WorkSpec, tally: Tally) -> int:
    """Receive until the time or the messages are used up."""
    consumer = _consumer(spec, tally)
    consumer.subscribe([spec.topic])
    last_ms = 0
    while tally.elapsed_ms() < spec.seconds * 1000 and tally.done < spec.messages:
        message = consumer.poll(0.1)
        tally.sample()
        if message is None or message.error() is not None:
            continue
        if tally.done:
            tally.waited(tally.elapsed_ms() - last_ms)
        last_ms = tally.elapsed_ms()
        tally.done += 1
        tally.payload_bytes += len(message.value())
    tally.waited(tally.elapsed_ms() - last_ms)
    consumer.close()
    return 0


def transform(spec: WorkSpec, tally: Tally) -> int:
    """The documented at-least-once loop: poll, produce; every so often flush, then commit."""
    consumer = _consumer(spec, tally)
    producer = _producer(spec, spec.producer_conf, tally, heartbeat=consumer)
    assigned = itertools.count()

    def on_assign(_consumer: Any, _partitions: Any) -> None:
        # The first assignment is how a group begins; every other one means that it was lost in between.
        tally.rebalances = next(assigned)

    consumer.subscribe([spec.topic], on_assign=on_assign)
    uncommitted = 0
    while tally.elapsed_ms() < spec.seconds * 1000:
        message = consumer.poll(0.1)
        tally.sample()
        producer.poll(0)
        if message is None or message.error() is not None:
            continue
        _send(
            producer, spec.output_topic, int(message.key()), message.value(), tally, until_ms=int(spec.seconds * 1000)
        )
        uncommitted += 1
        if uncommitted >= COMMIT_EVERY:
            uncommitted = 0
            _flush(producer, spec, tally)
            _commit(consumer)
    pending = int(producer.flush(LAST_FLUSH_S))
    tally.sample(force=True)
    return pending


def _flush(producer: Any, spec: WorkSpec, tally: Tally) -> None:
    # In slices, for the samples' sake; to the client it is one flush.
    while producer.flush(0.2) and tally.elapsed_ms() < spec.seconds * 1000:
        tally.sample()


def _commit(consumer: Any) -> None:
    # A commit that comes too late, after the group went on without us, is what this scene is about.
    with suppress(KafkaException):
        consumer.commit(asynchronous=False)


def _send(producer: Any, topic: str, number: int, payload: bytes, tally: Tally, until_ms: int) -> None:
    def report(error: Any, _message: Any) -> None:
        now_ms = SYSTEM_CLOCK.now_ms()
        tally.waited(now_ms - tally.pending_since_ms.pop(number, now_ms))
        if error is not None:
            tally.failed += 1
            return
        tally.done += 1
        tally.payload_bytes += len(payload)
        tally.acknowledged.append(number)

    called_ms = tally.pending_since_ms[number] = SYSTEM_CLOCK.now_ms()
    while True:
        try:
            producer.produce(topic, payload, key=str(number), on_delivery=report)
        except BufferError:
            # confluent_kafka's documented answer to a full queue.
            producer.poll(0.1)
            tally.sample()
            if tally.elapsed_ms() >= until_ms:
                tally.waited_ms += SYSTEM_CLOCK.now_ms() - called_ms
                del tally.pending_since_ms[number]
                return
        else:
            now_ms = SYSTEM_CLOCK.now_ms()
            tally.waited_ms += now_ms - called_ms
            if number in tally.pending_since_ms:  # else it has been reported already
                tally.pending_since_ms[number] = now_ms
            producer.poll(0)
            return


def _payloads(spec: WorkSpec) -> Iterator[tuple[int, bytes]]:
    if spec.input_file is None:
        for number in range(spec.messages):
            yield number, f"{number:012d}".encode().ljust(spec.message_bytes, b".")
        return
    lines = Path(spec.input_file).read_bytes().splitlines()
    for number, line in zip(range(spec.messages), itertools.cycle(lines), strict=False):
        yield number, line


def _producer(spec: WorkSpec, conf: dict[str, Any], tally: Tally, heartbeat: Any = None) -> Any:
    conf = {**conf, "throttle_cb": tally.throttled}
    if spec.flavour == WRAPPED:
        return Producer(conf, heartbeat=heartbeat) if heartbeat is not None else Producer(conf)
    return PlainProducer(conf)


def _consumer(spec: WorkSpec, tally: Tally) -> Any:
    conf = {**spec.conf, "throttle_cb": tally.throttled}
    return Consumer(conf) if spec.flavour == WRAPPED else PlainConsumer(conf)


ROLES: dict[str, Callable[[WorkSpec, Tally], int]] = {"produce": produce, "consume": consume, "transform": transform}


def main() -> None:
    """Do the work that the one argument describes."""
    # Ctrl-C reaches the whole process group; the demo decides when a worker ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    spec = WorkSpec.from_json(sys.argv[1])
    tally = Tally()
    pending = ROLES[spec.role](spec, tally)
    print(outcome_line(tally.outcome(pending)), flush=True)  # noqa: T201 - as above
    # Closing the plain client under a throttle can take for ever; the outcome is out, so the process just ends.
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
