"""`kclient-quota certify`: ours passes, a driver that does everything wrong does not, a broken one is not played."""

import sys
from pathlib import Path

import pytest

from kclient_quota.certify.scenes import select
from kclient_quota.certify.stage import play
from kclient_quota.certify.verdict import Grade
from kclient_quota.cli.main import main

QUICK = (
    "produce-answered-then-muted",
    "produce-close-in-throttle",
    "consume-close-in-throttle",
    "telemetry-terminating",
)
WRONG = """
import json, os, time
tell = lambda **line: print(json.dumps(line), flush=True)
for number in range(int(os.environ["CERTIFY_MESSAGES"]) % 1000):
    tell(event="sent", id=number)
    tell(event="acknowledged", id=number)
time.sleep(60)
"""


@pytest.mark.parametrize("name", QUICK)
def test_ours_passes(name: str) -> None:
    (scene,) = select([name])
    verdict, _ = play(scene, [sys.executable, "-m", "kclient_quota.certify.drivers.confluent", "ours"])
    assert verdict.grade is Grade.PASS, verdict.why


def test_who_acknowledges_what_was_never_sent_fails(tmp_path: Path) -> None:
    driver = tmp_path / "wrong.py"
    driver.write_text(WRONG)
    (scene,) = select(["produce-answered-then-muted"])
    verdict, _ = play(scene.__class__(**{**vars(scene), "within_ms": 2_000}), [sys.executable, str(driver)])
    assert (verdict.grade, verdict.why[:16]) == (Grade.FAIL, "400 messages wer")


def test_a_broken_driver_is_not_played_and_the_status_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    driver = tmp_path / "broken.py"
    driver.write_text("raise SystemExit('no such client')")
    kept, badge = tmp_path / "card.json", tmp_path / "badge.svg"
    words = ["certify", "client", "--only", "produce-short", "--json", str(kept), "--badge", str(badge), "--name", "x"]
    assert main([*words, "--", sys.executable, str(driver)]) == 1
    said = " ".join(capsys.readouterr().out.split())
    assert "not played produce-short-throttles the driver told nothing and ended with status 1: no such client" in said
    assert badge.read_text().startswith("<svg")
    assert main(["certify", "page", str(kept)]) == 0
    assert "no such client" in capsys.readouterr().out
    verdict, _ = play(select(["produce-short"])[0], [str(tmp_path / "absent")])
    assert verdict.grade is Grade.NOT_PLAYED
