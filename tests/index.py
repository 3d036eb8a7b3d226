"""A number that is none of Python's own types."""


class Index:
    """An integer as numpy has them."""

    def __init__(self, number: int) -> None:
        self._number = number

    def __index__(self) -> int:
        return self._number
