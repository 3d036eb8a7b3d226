"""The generated pages are what the code says, and every warning has a cause and a remedy there."""

import pytest

from docs.generate import log_messages
from docs.generate.__main__ import PAGES
from docs.generate.page import REFERENCE


@pytest.mark.parametrize("name", sorted(PAGES))
def test_the_page_is_what_the_code_says(name: str) -> None:
    assert (REFERENCE / name).read_text() == PAGES[name](), "run: python -m docs.generate"


def test_every_warning_has_a_cause_and_a_remedy() -> None:
    untold = [
        message
        for message, level in log_messages.messages()
        if level != "INFO" and log_messages.cause_of(message) == ("", "")
    ]
    assert not untold, "give each its line in docs/generate/log_causes.py, then run: python -m docs.generate"
