"""tests/typing/api.py lists every door: none that confluent_kafka has is missing from it."""

from pathlib import Path

import confluent_kafka
import pytest

API = (Path(__file__).parents[1] / "typing" / "api.py").read_text()


@pytest.mark.parametrize(
    ("name", "door"),
    [
        (name, door)
        for name in ("Producer", "Consumer")
        for door in dir(getattr(confluent_kafka, name))
        if not door.startswith("_")
    ],
)
def test_listed(name: str, door: str) -> None:
    assert f"{name.lower()}.{door}(" in API
