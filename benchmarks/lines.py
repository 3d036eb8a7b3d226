"""`python -m benchmarks.lines`: how large the clients' rooms are, now and before they were rebuilt around pure cores.

Counts lines of Python in `kclient_quota/clients` and of what paces, and the largest file, in the working tree and in
the revision given. Before the rebuild the laws were in `kclient_quota/quota`, beside what brokers compute.
"""

import argparse
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOM: Final = "kclient_quota"
BEFORE: Final = "69d0ac3"
LAWS_BEFORE: Final = ("learning.py", "pacing.py", "price.py", "share.py")
"""What is in `pacing/` now."""


def main() -> int:
    """Prints a line for each of the two."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.lines", description=__doc__)
    parser.add_argument("--before", default=BEFORE, help="revision to compare with")
    before = parser.parse_args().before
    print(f"{'':<10} clients   laws    sum  files  largest")
    _show(before, _of_revision(before))
    _show("now", _of_tree())
    return 0


def _show(name: str, lines: dict[str, int]) -> None:
    clients = {path: count for path, count in lines.items() if path.startswith(f"{ROOM}/clients/")}
    laws = {path: count for path, count in lines.items() if _is_law(path)}
    all_of_them = clients | laws
    largest = max(all_of_them, key=all_of_them.__getitem__)
    sums = sum(clients.values()), sum(laws.values()), sum(all_of_them.values())
    print(f"{name:<10} {sums[0]:>7} {sums[1]:>6} {sums[2]:>6} {len(all_of_them):>6}  {lines[largest]} {largest}")


def _is_law(path: str) -> bool:
    room, _, file = path.removeprefix(f"{ROOM}/").partition("/")
    return room == "pacing" or (room == "quota" and file in LAWS_BEFORE)


def _of_tree() -> dict[str, int]:
    return {str(path): _count(path.read_text()) for path in Path(ROOM).rglob("*.py")}


def _of_revision(revision: str) -> dict[str, int]:
    names = [name for name in _git("ls-tree", "-r", "--name-only", revision, ROOM).splitlines() if name.endswith(".py")]
    wanted = [name for name in names if name.startswith(f"{ROOM}/clients/") or _is_law(name)]
    return {name: _count(_git("show", f"{revision}:{name}")) for name in wanted}


def _git(*arguments: str) -> str:
    return subprocess.run(("git", *arguments), check=True, capture_output=True, text=True).stdout


def _count(text: str) -> int:
    return len(text.splitlines())


if __name__ == "__main__":
    sys.exit(main())
