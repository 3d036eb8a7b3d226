"""What a batch takes on the wire: so much for itself, and so much for each byte of its messages.

A broker counts bytes after batching and compression. A request, its batch's header and what a compressor must first
learn take the same whatever the batch holds; beyond that every byte of the messages takes its part. Both are learnt
from what librdkafka says it has sent.
"""

from typing import Final

FORGET: Final = 0.9
"""What an observation still counts for when the next one is made."""
FRAMING_BYTES: Final = 90.0
"""A produce request and its batch's header, without the names of topic and client that it carries."""
NAMES_BYTES: Final = 60.0
"""Taken for those names until they are known."""
OVERHEAD_BYTES: Final = FRAMING_BYTES + NAMES_BYTES
FIRST_BYTES: Final = 200.0
"""What the first message of a compressed batch takes more than the later ones, but never more than it is itself."""
LITTLE: Final = 0.95
"""What takes so much of its raw bytes, framing included, does not compress, whatever `compression.type` says."""
TRUST: Final = 4.0
"""For how many observations what is assumed of the overhead counts."""
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
        self.overhead = self._assumed(FIRST_BYTES)
        self.part = 1.0

    def wire(self, raw_bytes: float, batches: int = 1) -> float:
        """What `raw_bytes` of messages in so many batches take on the wire."""
        return self.overhead * batches + self.part * raw_bytes

    def raw(self, wire_bytes: float) -> float:
        """How many raw bytes one batch holds that takes so many on the wire; may be below zero."""
        return (wire_bytes - self.overhead) / self.part

    @property
    def compresses(self) -> bool:
        """Whether compression is set, and messages have not shown that it makes nothing of them."""
        return self._compressed and self._wire <= LITTLE * self._raw

    def is_dear(self, wire_bytes: float, raw_bytes: float, batches: float) -> bool:
        """Whether these bytes on the wire are too many for so many raw ones in so many batches."""
        return wire_bytes > DEAR * (self.overhead * batches + self.part * raw_bytes)

    def forget(self) -> None:
        """Learn anew, from the next observation on."""
        self._sums = [0.0] * 5
        self._batches = self._raw = self._wire = 0.0

    def _assumed(self, message_bytes: float) -> float:
        """What a batch takes whatever it holds, as far as that is known without having seen any."""
        first = min(FIRST_BYTES, message_bytes) if self.compresses else 0.0
        return FRAMING_BYTES + self.names_bytes + first

    def observe(self, batches: int, raw_bytes: int, wire_bytes: int, message_bytes: float = FIRST_BYTES) -> None:
        """So many batches of so many raw bytes, in messages of `message_bytes` each, have taken so many on the wire."""
        if batches <= 0 or raw_bytes <= 0 or wire_bytes <= 0:
            return
        self._batches = self._batches * FORGET + batches
        self._raw = self._raw * FORGET + raw_bytes
        self._wire = self._wire * FORGET + wire_bytes
        # Least squares of wire / raw = part + overhead * (batches / raw).
        x, y = batches / raw_bytes, wire_bytes / raw_bytes
        self._sums = [FORGET * old + new for old, new in zip(self._sums, (1.0, x, x * x, y, x * y), strict=True)]
        count, sum_x, sum_xx, sum_y, sum_xy = self._sums
        spread = sum_xx - sum_x * sum_x / count
        doubt = TRUST * (sum_x / count) ** 2 / 100.0
        assumed = self._assumed(message_bytes)
        slope = (sum_xy - sum_x * sum_y / count + doubt * assumed) / (spread + doubt)
        if not self._compressed:
            # Nothing is to be learnt but what does not fit: statistics come while batches are on their way, by which
            # both sides of the equation err alike, and 240 bytes were learnt of a hundred.
            slope = assumed
        # All that was seen must come out right, however it is divided.
        most = 0.9 * self._wire / self._batches
        overhead = min(max(slope, LEAST_OVERHEAD), MOST_OVERHEAD, most)
        self.overhead = overhead
        self.part = min(max((self._wire - overhead * self._batches) / self._raw, LEAST_PART), MOST_PART)
