"""How far the compaction of a log has come."""

from dataclasses import dataclass, field
from typing import Final

WAITING: Final = -1
"""What a step of a compaction yields that has looked at nothing: the disk is waited for."""


@dataclass(slots=True)
class Compacted:
    """What is remembered from one compaction to the next.

    Attributes:
        end_offset: behind what was compacted; from here on the log is dirty.
        tombstones: offsets of records without a value, and when they may go (KIP-534's delete horizon).
    """

    end_offset: int = 0
    tombstones: dict[int, int] = field(default_factory=dict)
