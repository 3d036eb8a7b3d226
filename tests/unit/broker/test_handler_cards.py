"""The card that opens a file of handlers says what is registered there."""

import re
import sys

import pytest

from kclient_quota.broker.handlers import REGISTRY
from kclient_quota.wire.messages import API

_ENTRY = re.compile(r"\b([A-Z]\w+) \((\d+)\) v(\d+)(?:-(\d+))?")
FILES = sorted({entry.call.__module__ for entry in REGISTRY.values()})


@pytest.mark.parametrize("module", FILES)
def test_card_names_every_api_with_its_key_and_versions(module):
    card = sys.modules[module].__doc__
    said = {int(key): (name, int(first), int(last or first)) for name, key, first, last in _ENTRY.findall(card)}
    registered = {
        key: (API[key].name, entry.min_version, entry.max_version)
        for key, entry in REGISTRY.items()
        if entry.call.__module__ == module
    }
    assert said == registered


@pytest.mark.parametrize("module", FILES)
def test_card_says_what_is_missing_and_why_it_is_so(module):
    card = sys.modules[module].__doc__
    assert "KIP-" in card
    assert "\nBehaviour: " in card
    assert "Gaps: " in card
