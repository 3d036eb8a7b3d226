"""What one setting would buy: how many more messages the same quota would carry, found out on a few of them.

A broker counts bytes after batching and compression. So a sample of messages is made into batches, once as they are
sent now and once for each setting that could be changed, and the sizes are compared. A sample is a hundred messages or
so, looked at once in a while: nothing here is meant for every message.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from kclient_telemetry.compression import CompressionType, is_available

from kclient_quota.pacing.sending.batch_cost import OVERHEAD_BYTES
from kclient_quota.wire.batches import HEADER_BYTES
from kclient_quota.wire.records import Record, build_batch

SAMPLE: Final = 100
"""Messages that are enough to tell what a compressor makes of them."""
MUCH: Final = 1.5
"""A setting that buys less is not worth a word."""
_REQUEST_BYTES: Final = OVERHEAD_BYTES - HEADER_BYTES
_TRIED: Final = (CompressionType.ZSTD, CompressionType.LZ4)
"""The best first; gzip and snappy are never better than both."""


@dataclass(frozen=True, slots=True)
class Worth:
    """What one setting would buy.

    Attributes:
        setting: as it is written into a configuration, such as `compression.type=zstd`.
        times: how many messages the quota would carry for each that it carries now.
        together: messages in a batch, with that setting.
        ratio: bytes of such a batch before compression for each byte after it.
        sample: how many messages were looked at.
    """

    setting: str
    times: float
    together: int
    ratio: float
    sample: int

    def sentence(self, topic: str) -> str:
        """For people, such as "orders compress 4.1 : 1 in batches of 100; compression.type=zstd would ..."."""
        told = f"{topic} compress {self.ratio:.1f} : 1" if self.ratio >= _VISIBLE else f"{topic} do not compress"
        return (
            f"{told} in batches of {self.together}; {self.setting} would send {self.times:.1f} times the messages "
            f"(measured on {self.sample})"
        )


_VISIBLE = 1.05


_LEAST_SAMPLE: Final = 10
_LINGER: Final = "linger.ms=100"


def worth(
    sample: Sequence[Record],
    *,
    compression: str,
    together: float,
    most_together: int | None = None,
    more_by: str = _LINGER,
) -> Worth | None:
    """The one setting that buys most; None if none buys much.

    Args:
        sample: messages of one topic, `SAMPLE` or so, as they follow one another.
        compression: `compression.type` now.
        together: messages in a batch now, on average.
        most_together: how many could be in one if the producer waited for them; None where it would not help.
        more_by: the setting that has it wait.

    Returns:
        None also for a sample that is too small, and for compression that Python has no library for.
    """
    codec = CompressionType[compression.upper()] if compression.upper() in CompressionType.__members__ else None
    count = max(1, min(round(together), len(sample)))
    if codec is None or not is_available(codec) or len(sample) < _LEAST_SAMPLE:
        return None
    now = _bytes_each(sample, count, codec)
    found = []
    if codec is CompressionType.NONE:
        for other in filter(is_available, _TRIED):
            each = _bytes_each(sample, count, other)
            setting = f"compression.type={other.name.lower()}"
            found.append(Worth(setting, now / each, count, _ratio(sample, count, other), len(sample)))
    more = min(most_together or 0, len(sample))
    if more > count:
        each = _bytes_each(sample, more, codec)
        found.append(Worth(more_by, now / each, more, _ratio(sample, more, codec), len(sample)))
    best = max(found, key=lambda option: option.times, default=None)
    return best if best is not None and best.times >= MUCH else None


def _bytes_each(sample: Sequence[Record], together: int, codec: CompressionType) -> float:
    """What a message takes of the quota on average, when so many share a produce request."""
    batches = [sample[begin : begin + together] for begin in range(0, len(sample), together)]
    wire = sum(_REQUEST_BYTES + len(build_batch(batch, compression=codec)) for batch in batches)
    return wire / len(sample)


def _ratio(sample: Sequence[Record], together: int, codec: CompressionType) -> float:
    batch = sample[:together]
    return len(build_batch(batch)) / len(build_batch(batch, compression=codec))
