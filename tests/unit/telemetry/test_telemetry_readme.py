"""README's picture of the reporter is the reporter's own table."""

from pathlib import Path

from kclient_telemetry.client.states import diagram

README = Path(__file__).parents[3] / "README.md"


def test_the_state_diagram_in_the_readme_is_the_table_of_states() -> None:
    text = README.read_text()
    assert f"```mermaid\n{diagram()}\n```" in text
