"""A second's messages in a call of a second, from the embedded broker."""

from tests.measured.test_consume import (
    SCENES,
    test_a_call_gets_what_came_in_its_time,
)

__all__ = ["SCENES", "test_a_call_gets_what_came_in_its_time"]
