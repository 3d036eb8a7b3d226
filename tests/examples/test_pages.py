"""README and docs: every Python block runs (tests as tests), every link leads somewhere, the README stays short.

A block that talks to localhost:9092 talks to an embedded broker. A block runs by itself, in a directory of its own.
"""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from kclient_quota.broker import EmbeddedBroker

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
LINKED = [
    *ROOT.glob("*.md"),
    *(page for room in ("docs", "benchmarks", "tests") for page in (ROOT / room).rglob("*.md")),
]
_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
_CODE = re.compile(r"^```.*?^```$|`[^`\n]+`", re.MULTILINE | re.DOTALL)
README_LINES = 250
RUNS_S = 150


def blocks() -> list[tuple[str, str]]:
    """Name and text of every block."""
    return [
        (f"{page.relative_to(ROOT)}-{number}", text)
        for page in PAGES
        for number, text in enumerate(_BLOCK.findall(page.read_text()), 1)
    ]


def anchors(page: Path) -> set[str]:
    """What a page's headings are called, as GitHub and mkdocs call them."""
    headings = re.findall(
        r"^#+ (.+)$", _CODE.sub(lambda code: code[0].strip("`").split("\n")[0], page.read_text()), re.MULTILINE
    )
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("text", [pytest.param(text, id=name) for name, text in blocks()])
def test_every_block_runs(text: str, tmp_path: Path) -> None:
    with EmbeddedBroker(topics={"orders": 1}) as cluster:
        producer = {"bootstrap.servers": cluster.bootstrap_servers}
        cluster.set_quota(client_id="orders", producer_byte_rate=51_200)
        program = tmp_path / "test_block.py"
        program.write_text(text.replace("localhost:9092", cluster.bootstrap_servers))
        if "billing" in text:
            _fill(producer)
        as_tests = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path)]
        command = [sys.executable, *(as_tests if "def test_" in text else []), program.name]
        ran = subprocess.run(
            command, cwd=tmp_path, capture_output=True, text=True, timeout=RUNS_S, check=False, env=_environment()
        )
    assert ran.returncode == 0, ran.stdout + ran.stderr


def _fill(conf: dict[str, str]) -> None:
    from confluent_kafka import Producer

    producer = Producer(conf)
    for number in range(100):
        producer.produce("orders", f"order {number}")
    assert producer.flush(60) == 0


def _environment() -> dict[str, str]:
    import os

    paths = [str(ROOT), str(ROOT / "telemetry"), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in paths if path)}


@pytest.mark.parametrize("page", LINKED, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    for link in _LINK.findall(_CODE.sub("", page.read_text())):
        target, _, anchor = link.partition("#")
        if re.match(r"[a-z]+:", target):
            continue
        path = (page.parent / target).resolve() if target else page
        assert path.exists(), f"{page.name}: {link}"
        assert not anchor or anchor in anchors(path), f"{page.name}: {link}"


def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs")
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    environment = {**_environment(), "NO_MKDOCS_2_WARNING": "1"}
    ran = subprocess.run(build, cwd=ROOT, capture_output=True, text=True, timeout=RUNS_S, check=False, env=environment)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert (tmp_path / "index.html").exists()


def test_the_readme_is_read_in_five_minutes() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= README_LINES
