"""What a suite's own report says of each of its tests."""

import json
import re
import xml.etree.ElementTree as ET
from collections import Counter
from pathlib import Path

PASS, FAIL, SKIP = "pass", "fail", "skip"

Outcomes = dict[str, str]


def of_go(output: str) -> Outcomes:
    """From `go test -v`, converted by `go tool test2json`; a test that never ended has failed."""
    found: Outcomes = {}
    for line in output.splitlines():
        if not line.startswith("{"):
            continue
        event = json.loads(line)
        if event.get("Test") and event["Action"] in {"run", PASS, FAIL, SKIP}:
            name = re.sub(r":\d{4,5}\b", ":port", event["Test"])
            found[name] = FAIL if event["Action"] == "run" else event["Action"]
    return found


def of_pytest(report: Path) -> Outcomes:
    """From pytest's `--junit-xml`."""
    if not report.exists():
        return {}
    found: Outcomes = {}
    for case in ET.parse(report).iter("testcase"):
        children = {child.tag for child in case}
        name = f"{case.get('classname', '').rpartition('.')[2]}::{case.get('name')}"
        if children & {"failure", "error"}:
            found[name] = FAIL
        else:
            found.setdefault(name, SKIP if "skipped" in children else PASS)
    return found


def counted(outcomes: Outcomes) -> str:
    """As it stands in the table: `149 / 0 / 3`, passed, failed, skipped."""
    counts = Counter(outcomes.values())
    return f"{counts[PASS]} / {counts[FAIL]} / {counts[SKIP]}"


def worse(ours: Outcomes, theirs: Outcomes) -> list[str]:
    """Tests that pass on theirs and do not on ours; of a test and its parts only the parts."""
    names = [name for name, outcome in theirs.items() if outcome == PASS and ours.get(name) != PASS]
    return [name for name in names if not any(other.startswith(f"{name}/") for other in names)]
