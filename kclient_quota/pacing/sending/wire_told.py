"""What librdkafka says that it has sent to one broker, and what is to be learnt from it of what batches take.

It says so once a second, and never what of all that was granted is among it. So it is learnt when that is told: when
nothing is on its way, or so much has passed that it does not matter; and at once when it is other data for certain.
"""

from typing import Final

from kclient_quota.pacing.sending.batch_cost import BatchCost
from kclient_quota.pacing.trend import TREND

LOOKS: Final = round(1 / TREND)
"""So many statistics may pass until nothing is on its way, which then tell exactly. A batch that is counted on one side
and not yet on the other has 60 to 1,400 bytes learnt for framing of 156."""
CHEAP_LOOKS: Final = 3
"""After so many statistics in a row that tell of less than half of what was foretold, whatever is still on its way, it
is other data. Without that it takes 20 s, the quota unused, until data that compress 20 : 1 again are sent as such:
phases of 20 s of them have 1.3 times as many messages at 200,000 B/s, 2 ms away, and 4.8 times as many 80 ms away.
After only one of them, data that change every second would be throttled every second."""


class WireTold:
    """Of one broker, for what learns what batches cost.

    Attributes:
        batches: granted so far.
        usual_bytes: that one of them was to take, on average, as of late; 0: not known.
    """

    def __init__(self, cost: BatchCost) -> None:
        self._cost = cost
        self._seen = (0, 0)  # batches and raw bytes granted when the wire was last looked at
        self._latest = (0, 0)  # batches granted when statistics last told of any, and bytes on the wire since
        self._unsent = 0  # raw bytes whose delivery was not known then
        self._heard = 0  # bytes on the wire since then
        self._looks = 0  # statistics since then
        self._cheap_looks = 0  # statistics in a row that have told of too little
        self._is_mixed = False  # whether others' are among them
        self.batches, self.usual_bytes = 0, 0.0

    def on_granted(self, wire_bytes: int) -> None:
        """A batch goes that is to take so much."""
        self.batches += 1
        self.usual_bytes += (wire_bytes - self.usual_bytes) * (TREND if self.usual_bytes else 1.0)

    def hear(self, wire_bytes: int, *, is_mixed: bool) -> None:
        """So much has been sent since the last time; `is_mixed`: not only of what was granted."""
        self._heard += wire_bytes
        self._latest = (self._latest[0], wire_bytes)
        self._looks += 1
        self._is_mixed |= is_mixed

    def on_given_up(self) -> None:
        """Some of what was granted has not arrived: maybe it was never sent, which is no sign of cheap data."""
        self._cheap_looks = -LOOKS

    def learn(self, granted: int, outstanding: int, flying: int, message_bytes: float) -> bool:
        """What librdkafka has not sent must not pass for what compresses well; what compresses badly shows at once.

        Nor must what it has sent to another broker, who leads the partition by now. It would be taken for data that
        compress to nothing, and sent at 200 times the quota until it is known who leads it, half a minute later.

        Args:
            granted: raw bytes so far.
            outstanding: of them, those whose delivery is not known.
            flying: batches that they are in.
            message_bytes: raw bytes of a message.

        Returns:
            Whether what was granted has gone elsewhere, or nowhere.
        """
        looks = LOOKS if self._cost.is_learnt else 0
        batches, raw = self.batches - self._seen[0], granted - self._seen[1]
        before = self._unsent * self.batches / max(granted, 1) + 1.0 if self._unsent else 0.0
        seen, heard = self._latest
        self._latest = (self.batches, 0)
        if self._cost.is_none(heard, self.batches - seen - flying):
            self._begin_anew(granted, outstanding)
            return True
        is_dear = not self._is_mixed and self._cost.is_dear(self._heard, raw + self._unsent, batches + before)
        is_cheap = self._is_cheap(raw - outstanding)
        if is_dear:
            self._cost.forget()
            raw += self._unsent  # too much rather than too little: it is known to have come to this much at least
            batches = max(batches, 1)
        elif is_cheap:
            self._cost.forget()
            raw, batches = raw - outstanding, max(batches - flying, 1)  # too little rather than too much
        elif outstanding and (outstanding > raw * TREND or self._looks < looks):
            return False
        # What began in doubt begins anew where it can be told exactly.
        if is_dear or is_cheap or not (self._is_mixed or (self._unsent and self._looks < looks)):
            self._cost.observe(batches, raw, self._heard, message_bytes, worth=self._looks)
        self._begin_anew(granted, outstanding)
        return False

    def _begin_anew(self, granted: int, outstanding: int) -> None:
        self._seen = (self.batches, granted)
        self._unsent = outstanding
        self._heard, self._looks, self._is_mixed = 0, 0, False

    def _is_cheap(self, raw_bytes: int) -> bool:
        """Whether it is certain by now that less than half of what was foretold is sent, of so many bytes at least."""
        is_less = not self._is_mixed and self._cost.is_cheap(self._heard, raw_bytes)
        self._cheap_looks = self._cheap_looks + 1 if is_less else 0
        if self._cheap_looks < CHEAP_LOOKS:
            return False
        self._cheap_looks = 0
        return True
