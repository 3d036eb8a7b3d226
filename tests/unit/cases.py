"""Cases of one law that are too many and too short to be tests of their own."""

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def case(name: str) -> Iterator[None]:
    """What fails within names its case.

    Each worker of a run collects every test: thousands of cases of a millisecond cost more there than they take.
    """
    try:
        yield
    except BaseException as error:
        error.add_note(name)
        raise
