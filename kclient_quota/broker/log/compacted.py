"""How far the compaction of a log has come."""

from dataclasses import dataclass, field


@dataclass(slots=True)
class Compacted:
    """What is remembered from one compaction to the next.

    Attributes:
        end_offset: behind what was compacted; from here on the log is dirty.
        tombstones: offsets of records without a value, and when they may go (KIP-534's delete horizon).
    """

    end_offset: int = 0
    tombstones: dict[int, int] = field(default_factory=dict)
