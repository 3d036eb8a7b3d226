"""Client telemetry into a Kafka topic, through a producer of ours.

    FanOut([QueuedSink(TopicWriter({"bootstrap.servers": "kafka:9092"}, "client-metrics"))])

A record's value is an OTLP ExportMetricsServiceRequest with the client's attributes, as OpenTelemetry's Kafka receiver
reads it (`encoding: otlp_proto`); its key is the client instance id, so that a client's pushes stay in order. Headers:
`client_id`, `principal`, `push_interval_ms`, and `terminating` of a client's last push.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from kclient_telemetry.messages import uuid_text
from kclient_telemetry.receiver.plugin import PUSH_INTERVAL_HEADER, TERMINATING_HEADER

from kclient_quota.clients.producer import Producer

if TYPE_CHECKING:
    from kclient_telemetry.receiver.fanout import ReceivedPush

logger = logging.getLogger("kclient_quota")

CLOSE_S: Final = 5.0
_DEFAULTS: Final[Mapping[str, Any]] = {
    "client.id": "client-telemetry",
    "compression.type": "zstd",
    "max.block.ms": 5_000,
    # what exports telemetry does not push any about itself: it would go round in circles
    "enable.metrics.push": False,
}


@dataclass(slots=True)
class TopicCounters:
    """Where every push has gone: `produced` = `delivered` + `failed` + what is under way."""

    produced: int = 0
    delivered: int = 0
    failed: int = 0


class TopicWriter:
    """Writes pushes to a topic; for `kclient_telemetry.receiver.queued.QueuedSink`, whose thread waits for a quota.

    The producer is made with the first push, so that the topic's cluster may start later than the receiver.

    Args:
        conf: the producer's configuration, over ours (no telemetry of its own, zstd, 5 s of waiting for a quota).
        topic: where to.

    Attributes:
        counters: what became of the pushes.
    """

    def __init__(self, conf: Mapping[str, Any], topic: str) -> None:
        self.counters = TopicCounters()
        self._conf = {**_DEFAULTS, **conf}
        self._topic = topic
        self._producer: Producer | None = None

    def write(self, push: "ReceivedPush") -> None:
        """Produce one push.

        Raises:
            BufferError: the queue is full, or the quota does not allow it in time; the push is lost and counted.
        """
        if self._producer is None:
            self._producer = Producer(self._conf)
        self._producer.produce(
            self._topic,
            push.enriched,
            key=uuid_text(push.payload.client_instance_id),
            on_delivery=self._on_delivery,
            timestamp=push.received_unix_ms,
            headers=_headers(push),
        )
        self.counters.produced += 1
        self._producer.poll(0)

    def tick(self, now_unix_ms: int) -> None:  # noqa: ARG002 - the protocol's signature
        """Serve delivery reports."""
        if self._producer is not None:
            self._producer.poll(0)

    def close(self) -> None:
        """Deliver what is under way, within five seconds."""
        if self._producer is not None:
            self._producer.flush(CLOSE_S)
            self._producer.close()

    def _on_delivery(self, error: Any, message: Any) -> None:
        if error is None:
            self.counters.delivered += 1
            return
        self.counters.failed += 1
        if self.counters.failed == 1:
            logger.warning("client telemetry was not delivered to %s: %s", message.topic(), error)


def _headers(push: "ReceivedPush") -> list[tuple[str, bytes]]:
    """Who sent it, for those who route without decoding; and what OTLP has no words for."""
    who = [(name, push.attributes[name].encode()) for name in ("client_id", "principal") if name in push.attributes]
    ends = [(TERMINATING_HEADER, b"true")] if push.payload.is_terminating else []
    return [*who, (PUSH_INTERVAL_HEADER, b"%d" % push.context.push_interval_ms), *ends]
