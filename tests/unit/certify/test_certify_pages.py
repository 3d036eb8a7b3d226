"""The table of clients says what was measured, for the scenes that there are."""

import json
import re
import subprocess

import pytest

from benchmarks import certify_brokers, certify_clients, share_groups
from kclient_quota.certify.brokers.run import ALL as ROWS
from kclient_quota.certify.scene import Scene
from kclient_quota.certify.scenes import ALL


def test_the_pages_are_made_from_the_cards() -> None:
    if not certify_clients.cards():
        pytest.fail("no cards are kept: python -m benchmarks.certify_clients")
    for path, text in certify_clients.pages().items():
        assert path.read_text() == text


@pytest.mark.parametrize("made", certify_clients.cards(), ids=lambda made: made["client"])
def test_every_client_was_put_to_every_scene(made: dict) -> None:
    assert list(made["scenes"]) == [scene.name for scene in ALL]
    assert made["versions"]


@pytest.mark.parametrize("scene", ALL, ids=lambda scene: scene.name)
def test_a_scene_is_failed_on_purpose_and_passed_by_another_client_or_says_why_not(scene: Scene) -> None:
    assert json.loads(certify_clients.WRONG.read_text())["scenes"][scene.name]["grade"] == "fail"
    passing = {made["client"] for made in certify_clients.cards() if made["scenes"][scene.name]["grade"] == "pass"}
    assert passing - {"kclient-quota"} or scene.nobody


def test_cards_name_commits_that_a_reader_finds() -> None:
    """In what was cloned with its history."""
    cards = [*certify_clients.cards(), *certify_brokers.cards(), json.loads(certify_clients.WRONG.read_text())]
    named = {found for made in cards for found in re.findall(r"commit (\w+)", made["versions"])}
    assert named
    if _git("rev-parse", "--is-shallow-repository") == "false":
        assert {commit for commit in named if _git("merge-base", commit, "HEAD")[:10] != commit} == set()


def _git(*arguments: str) -> str:
    return subprocess.run(
        ["git", *arguments], cwd=certify_clients.ROOT, capture_output=True, text=True, check=False
    ).stdout.strip()


def test_versions_are_found() -> None:
    assert all(certify_clients.versions(client) for client in certify_clients.CLIENTS)


def test_the_table_of_brokers_is_made_from_the_cards() -> None:
    assert certify_brokers.PAGE.read_text() == certify_brokers.page()


def test_both_brokers_were_asked_everything_and_answered_alike() -> None:
    apache, embedded = (
        {name: row["grade"] for name, row in made["scenes"].items()} for made in certify_brokers.cards()
    )
    assert apache == embedded
    assert list(apache) == [row.name for row in ROWS]


def test_the_table_of_share_groups_is_made_from_what_was_kept() -> None:
    assert share_groups.PAGE.read_text() == share_groups.page()
