"""`python -m docs.generate.pictures`: draw the pictures of docs/explanation/ anew, by the simulation.

Each is what the command line under it on its page draws; the same code and seed give the same picture.
"""

import os
import re
import shlex
import sys

import matplotlib as mpl

from docs.generate.page import ROOT
from kclient_quota.cli.main import main as kclient_quota

PAGES = ROOT / "docs" / "explanation"
IMAGES = ROOT / "docs" / "images"
LINE = re.compile(r"^    kclient-quota (simulate .* --plot (\S+\.svg))$", re.MULTILINE)


def main() -> int:
    """Draw every picture that a page has a command line for."""
    os.environ["SOURCE_DATE_EPOCH"] = "0"
    mpl.rcParams["svg.hashsalt"] = "kclient-quota"
    for page in sorted(PAGES.glob("*.md")):
        for line, name in LINE.findall(page.read_text()):
            words = shlex.split(line)
            kclient_quota([*words[:-1], str(IMAGES / name)])
            print(f"drawn: docs/images/{name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
