"""How many examples a property has that takes seconds: some that are the same every time, more where they differ."""

from hypothesis import settings

ALL = 1_000
"""What `make random` has of a property that says nothing of it."""


def examples(same: int, random: int = ALL) -> int:
    """In `make test`, where examples are the same every time, and in `make random`."""
    return same if settings().derandomize else random
