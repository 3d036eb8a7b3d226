"""The generated pages are what the code says, and every warning has a cause and a remedy there."""

import re
import subprocess
import sys

from docs.generate.page import REFERENCE, ROOT


def test_the_pages_are_what_the_code_says() -> None:
    # in a process of its own: Python 3.11's `ast` fails when another thread parses something meanwhile
    command = [sys.executable, "-m", "docs.generate", "--check"]
    checked = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert (checked.returncode, checked.stdout) == (0, ""), f"run: python -m docs.generate\n{checked.stderr}"


def test_every_warning_has_a_cause_and_a_remedy() -> None:
    page = (REFERENCE / "log-messages.md").read_text()
    rows = re.findall(r"^\| (.+) \| (INFO|WARNING|ERROR) \| (.*) \| (.*) \|$", page, re.MULTILINE)
    assert len(rows) > 50
    untold = [message for message, level, cause, remedy in rows if level != "INFO" and not (cause and remedy)]
    assert not untold, "give each its line in docs/generate/log_causes.py, then run: python -m docs.generate"
