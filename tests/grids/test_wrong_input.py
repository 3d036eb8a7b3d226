"""Generated command lines, 500 of each program, with those of `make test` among them."""

import pytest

from tests.integration.test_wrong_input import nothing_is_really_done, play, programs

__all__ = ["nothing_is_really_done"]


@pytest.mark.parametrize("program", list(programs()))
def test_whatever_is_wrong_is_said_in_words(program):
    play(program, 500)
