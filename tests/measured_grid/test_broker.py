"""How exactly the embedded broker keeps its word."""

from tests.measured.test_broker import (
    test_a_fetch_is_held_up_for_a_window_to_the_tenth_of_a_second,
)

__all__ = ["test_a_fetch_is_held_up_for_a_window_to_the_tenth_of_a_second"]
