"""How many bytes should leave at once.

Lumps of L seconds cost L/11 of a quota (a window of 11 samples holds one lump more than intervals between lumps), and
a batch takes `overhead` bytes whatever it holds, A seconds of the quota. So of the quota (1 - L/11) (1 - A/L) is worth
something, most of it with lumps of sqrt(11 A) seconds. Shorter ones are chosen as long as they cost no more than WORTH.
"""

from math import inf, sqrt
from typing import Final, NamedTuple

from kclient_quota.quota.rate import QUOTA_SAMPLES

WORTH: Final = 0.008
"""Part of the messages per second that is given up for having them sooner; less of it, by 1 - 1/sqrt(n), where the best
lump holds n messages: they are whole, and the last one seldom fits."""
FRAMING_WORTH: Final = 2.5
"""Where nothing compresses, all that waiting can buy is what frames a batch. A message waits for this part of the delay
allowed times the part of all bytes that framing takes of messages alone in their batches: noise of 1,000 bytes, of
which that is a tenth, for 0.24 s over twelve partitions in place of 0.73, for 3 % of the messages. Of twice as much it
is 0.40 s and 1.5 %; half as much would leave 0.95 of the ideal where names are long."""
MAX_DELAY_MS: Final = 1_000


class LumpTerms(NamedTuple):
    """All that the size of a lump depends on.

    Attributes:
        rate: bytes per second on the wire that are aimed at; finite.
        least_bytes: so many on the wire at least.
        every_ms: from one request to the next, at least.
        way_ms: from a grant to its delivery.
        in_flight: how many requests may be on their way.
        overhead: bytes on the wire that a batch takes whatever it holds.
        part: bytes on the wire for each raw byte in it.
        compresses: whether compressing makes anything of messages.
        message_raw: raw bytes of a message, as of late; 0: not known.
        max_delay_ms: how long a message may wait for a fuller batch.
        places: so many lumps are to leave in a round.
    """

    rate: float
    least_bytes: int
    every_ms: float
    way_ms: float
    in_flight: int
    overhead: float
    part: float
    compresses: bool
    message_raw: float
    max_delay_ms: int
    places: float


def lump_bytes(terms: LumpTerms) -> int:
    """The raw bytes of a lump."""
    return max(1, int((lump_ms(terms) * terms.rate / 1000 - terms.overhead) / terms.part))


def lump_ms(terms: LumpTerms) -> float:
    """How much time's worth of the quota should leave at once."""
    least = terms.least_bytes / terms.rate
    if not terms.max_delay_ms:
        return 1000.0 * least
    samples = QUOTA_SAMPLES
    alone = terms.overhead / terms.rate  # seconds that a batch's overhead takes
    most = worth_waiting_ms(terms) / 1000 / max(terms.places, 1.0)
    best = min(sqrt(samples * alone), most)
    price = best / samples + alone / best
    messages = max(best * terms.rate / (terms.part * terms.message_raw), 1.0) if terms.message_raw else inf
    price += WORTH * (1.0 - 1.0 / sqrt(messages)) * max(1.0 - price, 0.0)
    lump = samples / 2 * (price - sqrt(max(price * price - 4 * alone / samples, 0.0)))
    return max(1000.0 * min(lump, most), 1000.0 * least, terms.way_ms / terms.in_flight, terms.every_ms)


def worth_waiting_ms(terms: LumpTerms) -> float:
    """How long a message may wait for a fuller batch: no longer than what that buys is worth."""
    allowed_ms = terms.max_delay_ms
    if not terms.message_raw or terms.compresses:
        return allowed_ms
    framing = terms.overhead / (terms.overhead + terms.part * terms.message_raw)
    return min(allowed_ms, FRAMING_WORTH * framing * max(allowed_ms, MAX_DELAY_MS))
