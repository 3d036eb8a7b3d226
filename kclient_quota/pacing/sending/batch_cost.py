"""What a batch takes on the wire: so much for itself, and so much for each byte of its messages.

A broker counts bytes after batching and compression. A request, its batch's header and what a compressor must first
learn take the same whatever the batch holds; beyond that every byte of the messages takes its part. The framing is
known from Kafka's formats; what compressing makes of the rest is learnt from what librdkafka says it has sent.
"""

from typing import Final

from kclient_quota.pacing.pacer import SLACK
from kclient_quota.pacing.trend import TREND

FRAMING_BYTES: Final = 90.0
"""A produce request (29 in version 10 with its header) and its batch's header (61), without the names of topic and
client that it carries; seven more in versions before 9."""
NAMES_BYTES: Final = 60.0
"""Taken for those names until they are known."""
OVERHEAD_BYTES: Final = FRAMING_BYTES + NAMES_BYTES
FIRST_BYTES: Final = 140.0
"""What the first message of a compressed batch takes more than the later ones, but never more than it is itself. Where
messages have left one at a time, all that is known of larger batches comes of it: too much here, and they are charged
for too little, which has to be paid back."""
LITTLE: Final = 1.0 - SLACK
"""What takes so much of its raw bytes, framing left out, does not compress, whatever `compression.type` says: no more
would be saved than what a lump may be off."""
DEAR: Final = 2.0
"""What takes so many times what was foretold is other data: all that was learnt of the former data is forgotten."""
LEAST_PART, MOST_PART = 0.005, 1.5
LEAST_OVERHEAD, MOST_OVERHEAD = 60.0, 4_000.0


class BatchCost:
    """Learns and foretells bytes on the wire.

    Args:
        compressed: whether `compression.type` is set.

    Attributes:
        names_bytes: of the topic and the client.id, which every request carries.
        overhead: bytes on the wire that a batch takes whatever it holds.
        part: bytes on the wire for each raw byte in it.
    """

    __slots__ = ("_batches", "_compressed", "_raw", "_sums", "_wire", "names_bytes", "overhead", "part")

    def __init__(self, *, compressed: bool = False) -> None:
        self._compressed = compressed
        self.forget()
        self.names_bytes = NAMES_BYTES
        self.overhead = self._framing + (FIRST_BYTES if compressed else 0.0)
        self.part = 1.0

    def wire(self, raw_bytes: float, batches: int = 1) -> float:
        """What `raw_bytes` of messages in so many batches take on the wire."""
        return self.overhead * batches + self.part * raw_bytes

    @property
    def compresses(self) -> bool:
        """Whether compression is set, and messages have not shown that it makes nothing of them."""
        return self._compressed and self._saved > 0.0

    @property
    def _framing(self) -> float:
        return FRAMING_BYTES + self.names_bytes

    @property
    def _saved(self) -> float:
        """What part of messages' bytes compressing has saved beyond little; all of it before any are known."""
        return LITTLE - (self._wire - self._framing * self._batches) / self._raw if self._raw else LITTLE

    def is_dear(self, wire_bytes: float, raw_bytes: float, batches: float) -> bool:
        """Whether these bytes on the wire are too many for so many raw ones in so many batches."""
        return wire_bytes > DEAR * (self.overhead * batches + self.part * raw_bytes)

    def is_cheap(self, wire_bytes: float, raw_bytes: float) -> bool:
        """Whether these bytes on the wire are too few for so many raw ones, whatever batches they are in."""
        return self.is_learnt and wire_bytes * DEAR < self.part * raw_bytes

    def is_none(self, wire_bytes: int, batches: int) -> bool:
        """Whether these bytes on the wire are too few for so many batches, whatever they hold.

        Librdkafka may have sent some of them as one.
        """
        return batches > 0 and wire_bytes < LEAST_OVERHEAD * batches / 2

    @property
    def is_learnt(self) -> bool:
        """Whether anything has been observed."""
        return self._raw > 0.0

    def forget(self) -> None:
        """Learn anew, from the next observation on."""
        self._sums = [0.0] * 5
        self._batches = self._raw = self._wire = 0.0

    def observe(
        self, batches: int, raw_bytes: int, wire_bytes: int, message_bytes: float = FIRST_BYTES, *, worth: int = 1
    ) -> None:
        """So many batches of so many raw bytes, in messages of `message_bytes` each, have taken so many on the wire.

        What was observed before counts for less afterwards, as if this had been so many observations as it is `worth`.
        """
        if batches <= 0 or raw_bytes <= 0 or wire_bytes <= 0:
            return
        kept = (1.0 - TREND) ** worth
        self._batches = self._batches * kept + batches
        self._raw = self._raw * kept + raw_bytes
        self._wire = self._wire * kept + wire_bytes
        # Least squares of (wire - framing * batches) / raw = part + first * (batches / raw).
        x, y = batches / raw_bytes, (wire_bytes - self._framing * batches) / raw_bytes
        self._sums = [kept * old + new for old, new in zip(self._sums, (1.0, x, x * x, y, x * y), strict=True)]
        count, sum_x, sum_xx, sum_y, sum_xy = self._sums
        spread = sum_xx - sum_x * sum_x / count
        # Below zero where it does worse in larger batches, as zstd with 128 readings does beside 64.
        # Nothing is to be learnt from the first message where that saves nothing.
        least_first, assumed = LEAST_OVERHEAD - self._framing, min(FIRST_BYTES, message_bytes)
        # What is assumed counts as much as one observation whose batches are larger or smaller by a tenth.
        doubt = (sum_x / count) ** 2 / 100.0
        slope = (sum_xy - sum_x * sum_y / count + doubt * assumed) / (spread + doubt)
        first = max(slope, least_first) if self.compresses else 0.0
        # All that was seen must come out right, however it is divided.
        most = min(0.9 * self._wire / self._batches, MOST_OVERHEAD)
        overhead = min(self._framing + first, most)
        self.overhead = overhead
        self.part = min(max((self._wire - overhead * self._batches) / self._raw, LEAST_PART), MOST_PART)
