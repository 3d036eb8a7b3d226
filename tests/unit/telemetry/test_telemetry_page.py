"""The picture in the pages of the reporter is the reporter's own table."""

from pathlib import Path

from kclient_telemetry.client.states import diagram

PAGE = Path(__file__).parents[3] / "docs" / "explanation" / "telemetry.md"


def test_the_state_diagram_of_the_pages_is_the_table_of_states() -> None:
    text = PAGE.read_text()
    assert f"```mermaid\n{diagram()}\n```" in text
