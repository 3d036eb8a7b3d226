"""What librdkafka makes of messages that leave together, and the most that a quota can be worth."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from math import exp, log
from typing import Final

from kclient_quota.simulation.batch_sizes import BATCH_BYTES

SAFETY: Final = 0.995
"""Part of a quota that the best client uses."""
SAMPLES: Final = 11
RECORD_BYTES: Final = 12
KEY_BYTES: Final = 3
NAMES_BYTES: Final = len("orders") + len("order-service")
"""Of the topic and the client.id, as the sizes of requests were measured."""


@dataclass(frozen=True, slots=True)
class Batching:
    """Requests of one kind of data under one compression, as librdkafka makes them.

    Attributes:
        data: "readings" (20 bytes), "orders" (290, JSON), "noise" (1,000) or "documents" (10,000, JSON).
        compression: "none", "lz4" or "zstd".
        names_bytes: of the topic and the client.id, which every request names.
    """

    data: str
    compression: str
    names_bytes: int = NAMES_BYTES

    @property
    def value_bytes(self) -> int:
        """Of a value, on average."""
        return BATCH_BYTES[self.data, self.compression][0]

    @property
    def raw_bytes(self) -> int:
        """Of a message: key, value and what a record adds to them."""
        return self.value_bytes + RECORD_BYTES + KEY_BYTES

    def request_bytes(self, messages: int) -> int:
        """Of a request that holds so many messages."""
        return self._measured_bytes(messages) + self.names_bytes - NAMES_BYTES

    def _measured_bytes(self, messages: int) -> int:
        """Between the sizes measured, and beyond them in proportion."""
        sizes = BATCH_BYTES[self.data, self.compression][1]
        for (fewer, small), (more, large) in pairwise(sizes):
            if messages <= more:
                part = log(messages / fewer) / log(more / fewer)
                each = exp(log(small / fewer) * (1 - part) + log(large / more) * part)
                return round(each * messages)
        most, largest = sizes[-1]
        return round(largest * messages / most)


@dataclass(frozen=True, slots=True)
class Ideal:
    """The most messages per second that a quota is worth.

    Attributes:
        messages_per_s: of values.
        batch: with so many messages in each request.
    """

    messages_per_s: float
    batch: int


def ideal(batching: Batching, quota: float, partitions: int, max_delay_ms: int) -> Ideal:
    """The best over all batches of n that arrive for a partition within the delay allowed.

    Lumps of L seconds leave 1 - L / 11 of the quota, of which a client can use SAFETY.

    Args:
        batching: data and compression.
        quota: bytes per second.
        partitions: to which messages go in turn; 1 for messages without keys, which may go anywhere.
        max_delay_ms: how long a message may wait for a full batch.
    """
    return max(_arriving(batching, quota, partitions, max_delay_ms), key=lambda each: each.messages_per_s)


def aged(batching: Batching, quota: float, partitions: int, age_ms: int) -> Ideal:
    """What a quota is worth in batches of all that arrives for a partition within so long; arguments as of `ideal`."""
    return max(_arriving(batching, quota, partitions, age_ms), key=lambda each: each.batch)


def _arriving(batching: Batching, quota: float, partitions: int, age_ms: int) -> Iterator[Ideal]:
    """Batches that arrive for a partition within so long, in lumps of a second at most."""
    messages = 1
    while True:
        nbytes = batching.request_bytes(messages)
        lump_s = nbytes / quota
        rate = quota * SAFETY * (1 - lump_s / SAMPLES) * messages / nbytes
        if messages > 1 and (messages * partitions > rate * age_ms / 1000 or lump_s > 1):
            return
        yield Ideal(rate, messages)
        messages = max(messages + 1, messages * 51 // 50)
