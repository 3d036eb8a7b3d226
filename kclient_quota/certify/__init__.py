"""Scenes that any Kafka client can be put to, in any language: does it bear throttling? `driver` has the contract."""

from typing import Final

SIDE_BY_SIDE: Final = 6
"""Scenes at a time."""
