"""Generated command lines, five times as many as in `make test`, and those among them."""

import pytest

from tests.integration.test_wrong_input import RUNS, nothing_is_really_done, play, programs

__all__ = ["nothing_is_really_done"]


@pytest.mark.parametrize("program", list(programs()))
def test_whatever_is_wrong_is_said_in_words(program):
    play(program, 5 * RUNS)
