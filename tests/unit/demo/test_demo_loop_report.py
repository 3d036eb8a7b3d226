"""The modules that draw are loaded by the tests that need them: matplotlib takes each worker of a run a second."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from kclient_quota.demo.closed_loop import Closed
from kclient_quota.demo.fleet import Member, Moment, Told

if TYPE_CHECKING:
    from pathlib import Path

    from kclient_quota.demo.loop_report import LoopAct

MEMBERS = (Member("meter-0", 100), Member("camera-0", 900), Member("camera-1", 900))


def moment(at_ms: int, meter: Told, *cameras: Told) -> Moment:
    return Moment(at_ms, dict(zip((member.client_id for member in MEMBERS), (meter, *cameras), strict=True)))


def act() -> LoopAct:
    from kclient_quota.demo.loop_report import LoopAct

    begin = moment(1_000, Told(), Told(), Told())
    before = moment(11_000, Told(40, 0, 0.0, 200.0), Told(10, 30, 4_000.0, 6_000.0), Told(40))
    settled = moment(13_500, Told(50), Told(15, 35, 4_000.0, 8_000.0), Told(50))
    calm = moment(18_500, Told(70), Told(35, 35, 4_000.0, 8_000.0), Told(70))
    after = moment(23_500, Told(90), Told(55, 35, 4_000.0, 8_050.0), Told(89, 1))
    history = [begin, before, settled, calm, after]
    return LoopAct(MEMBERS, history, Closed(12_000, begin, before, settled, calm, after, "version: 1\n", 6))


def test_before_and_after_are_counted_by_kind() -> None:
    from kclient_quota.demo.loop_report import rows

    assert rows(act()) == [
        ("seconds looked at", ["10", "5"]),
        ("meters that lack quota", ["0 of 1", "0 of 1"]),
        ("time that meters waited or were throttled", ["2.0%", "0.0%"]),
        ("readings of meters that found no room", ["0%", "0%"]),
        ("cameras that lack quota", ["1 of 2", "0 of 2"]),
        ("time that cameras waited or were throttled", ["30.0%", "0.5%"]),
        ("readings of cameras that found no room", ["38%", "2%"]),
        ("from apply until nobody lacked quota", ["", "1.5 s"]),
    ]


def test_the_report_has_the_plot_and_the_quotas(tmp_path: Path) -> None:
    from kclient_quota.demo.report import write

    summary, report = write(tmp_path, "the embedded broker", "today", [act()])
    told = json.loads(summary.read_text())["scenes"][0]
    assert (told["scene"], told["usage_rows"], told["settled_ms"]) == ("pipeline", 6, 1_500)
    before = told["findings"]["before"]
    assert (before["cameras_dropped"], before["cameras_waited"], before["cameras_throttled"]) == (0.375, 0.3, 0.2)
    page = report.read_text()
    assert page.count("<svg") == 1
    assert "<pre>version: 1" in page
