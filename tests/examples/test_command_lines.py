"""Every command line of the README and the documentation: its options exist, and what needs no other machine runs.

One that speaks to a cluster (localhost:9092, kafka:9092) speaks to the embedded broker.
"""

import re
import shlex
from pathlib import Path

import pytest

from kclient_quota.broker import EmbeddedBroker
from kclient_quota.cli import client_metrics, main, quotas

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    *sorted(page for page in (ROOT / "docs").rglob("*.md") if page.parent.name != "reference"),
]
_COMMAND = r"(?:kclient-quota|kafka-quotas|kafka-client-metrics) "
_IN_BLOCK = re.compile(rf"^(?:    |\$ )?({_COMMAND}-{{0,2}}[a-z].*)$", re.MULTILINE)
_IN_TEXT = re.compile(rf"`({_COMMAND}[^`]+)`")
_CLUSTER = re.compile(r"\b(localhost|kafka|HOST):(9092|PORT)\b")
_COMMENT = re.compile(r"\s+#\s.*")
QUOTAS = re.compile(r"^```yaml\n# quotas.yaml\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def lines() -> list[tuple[str, str]]:
    """Page and command line, each once; a name alone, and prose that begins with one, are none."""
    found = []
    for page in PAGES:
        text = page.read_text().replace("\\\n", " ")
        whole = [_COMMENT.sub("", line) for line in _IN_BLOCK.findall(text)]
        told = [" ".join(line.split()) for line in _IN_TEXT.findall(text) if " -" in line or "." in line]
        found += [(page.stem, line.strip()) for line in (*whole, *told) if "|" not in line and "quota has" not in line]
    return list(dict.fromkeys(found))


def words_of(line: str, servers: str = "localhost:9092") -> list[str]:
    """Without what the shell takes, and with every placeholder filled in."""
    line = _CLUSTER.sub(servers, line.split(" > ", maxsplit=1)[0]).replace(
        "--bootstrap-server …", f"--bootstrap-server {servers}"
    )
    return shlex.split(line)


def parsed(words: list[str]) -> None:
    command, *rest = words
    if command == "kclient-quota":
        main._parser(rest).parse_args(rest)
    elif command == "kafka-quotas":
        quotas._parsed(rest)
    else:
        client_metrics._parser().parse_args(rest)


@pytest.mark.parametrize(
    "line", [pytest.param(line, id=f"{page}-{number}") for number, (page, line) in enumerate(lines())]
)
def test_its_options_exist(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        parsed(words_of(line))
    except SystemExit:
        pytest.fail(f"{line}\n{capsys.readouterr().err}")


def test_there_are_many() -> None:
    assert len(lines()) >= 45
    assert {"README", "quotas-as-code", "simulate", "doctor", "throttling"} <= {page for page, _ in lines()}


# What is played for minutes, by hundreds of clients, stays with its own tests.
LONG = ("--brokers 100", "--clients 100 ")


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(line, id=f"{page}-{number}")
        for number, (page, line) in enumerate(lines())
        if "-quota simulate" in line and not any(sign in line for sign in LONG)
    ],
)
def test_a_simulation_runs(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main.main(words_of(line)[1:]) == 0


def test_every_picture_of_the_simulation_is_there() -> None:
    drawn = [line.split()[-1] for page, line in lines() if page in {"throttling", "pacing"} and " --plot " in line]
    assert drawn
    for name in drawn:
        assert (ROOT / "docs" / "images" / name).read_text().startswith("<?xml")


def run(line: str, servers: str) -> int:
    command, *rest = words_of(line, servers)
    return {"kafka-quotas": quotas.main, "kclient-quota": main.main, "kafka-client-metrics": client_metrics.main}[
        command
    ](rest)


def of_page(page: str, command: str) -> list[str]:
    return [
        line for name, line in lines() if name == page and line.startswith(command) and "--bootstrap-server" in line
    ]


@pytest.mark.parametrize("page", ["README", "quotas-as-code", "reqtmout", "troubleshooting", "telemetry"])
def test_a_page_s_commands_run_one_after_the_other(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As its reader does: what one writes the next one reads."""
    monkeypatch.chdir(tmp_path)
    todo = of_page(page, "kafka-")
    assert todo
    (given,) = QUOTAS.findall((ROOT / "docs" / "tutorials" / "quotas-as-code.md").read_text())
    (tmp_path / "quotas.yaml").write_text(given)
    with EmbeddedBroker(topics={"orders": 1}) as cluster:
        cluster.set_quota(client_id="orders", producer_byte_rate=51_200)
        for line in todo:
            asks_at_a_terminal = " apply " in line or " undo " in line
            status = run(f"{line} --yes" if asks_at_a_terminal else line, cluster.bootstrap_servers)
            said = capsys.readouterr()
            assert status in {0, 4} if " diff " in line else status == 0, (line, said.err)
            if " export " in line and page == "README":
                Path("quotas.yaml").write_text(said.out)


@pytest.mark.parametrize("page", ["doctor", "which-quota", "dashboards"])
def test_a_page_s_own_command_runs(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("client.properties").write_text("security.protocol=PLAINTEXT\n")
    commands = {
        "doctor": "kclient-quota doctor --b",
        "which-quota": "kafka-quotas advise",
        "dashboards": "kclient-quota dash",
    }
    (line,) = (line for name, line in lines() if name == page and line.startswith(commands[page]))
    with EmbeddedBroker(topics={"orders": 1}) as cluster:
        cluster.set_quota(client_id="orders", producer_byte_rate=51_200)
        status = run(line, cluster.bootstrap_servers)
    assert status in {0, 3}, capsys.readouterr().err
    assert capsys.readouterr().out or page == "dashboards"
