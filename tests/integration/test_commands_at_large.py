"""What holds for every command: quick help, versions, completion, Ctrl-C, closed pipes, full disks."""

import json
import os
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml
from confluent_kafka.admin import AdminClient

from kclient_quota import __version__
from kclient_quota.admin.model import ClientQuotaFilter
from kclient_quota.admin.quotas import QuotaAdmin
from kclient_quota.broker import EmbeddedBroker
from kclient_quota.cli import client_metrics, quotas
from kclient_quota.cli import main as kclient_quota_main
from kclient_quota.cli.quota_arguments import COMMANDS, command_parser, draft_parser
from kclient_quota.errors import ConfigError
from kclient_quota.quota.entity import ClientQuotaEntity
from tests.closed_port import closed_port

QUOTAS, METRICS, MAIN = "kclient_quota.cli.quotas", "kclient_quota.cli.client_metrics", "kclient_quota.cli.main"
HELPS = [
    [QUOTAS],
    *([QUOTAS, command] for command in COMMANDS),
    [METRICS],
    [MAIN],
    *([MAIN, command.name] for command in kclient_quota_main._COMMANDS),
]
HEAVY = "ssl yaml confluent_kafka google.protobuf opentelemetry lz4 asyncio concurrent.futures"
LOOK = """
import sys
from importlib import import_module
sys.argv = [*sys.argv[1:], "--help"]
module = import_module(sys.argv[0])
try:
    module.entry()
finally:
    print("loaded:", *(name for name in %r if name in sys.modules), file=sys.stderr)
"""


def python(*arguments, stdout=subprocess.PIPE, **kwargs):
    words = [sys.executable, *arguments]
    return subprocess.run(words, check=False, stdout=stdout, stderr=subprocess.PIPE, text=True, timeout=150, **kwargs)


@pytest.mark.parametrize("words", HELPS, ids=" ".join)
def test_help_loads_nothing_heavy(words):
    done = python("-c", LOOK % (HEAVY.split(),), *words, env={**os.environ, "COLUMNS": "80"})
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines()[-1] == "loaded:"
    assert all(len(line) <= 80 for line in done.stdout.splitlines())


@pytest.mark.parametrize(
    "main", [quotas.main, client_metrics.main, kclient_quota_main.main], ids=["quotas", "metrics", "main"]
)
def test_versions(main, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out.endswith(f" {__version__}\n")


def parsers():
    """Every command of all three programs, and those below them."""
    queue = [
        kclient_quota_main._parser([each.name for each in kclient_quota_main._COMMANDS]),
        command_parser(),
        draft_parser(),
        client_metrics._parser(),
    ]
    for parser in queue:
        named = [action.choices for action in parser._actions if isinstance(action.choices, dict)]
        below = [each for choices in named for each in choices.values()]
        queue += below
        if not below:
            yield pytest.param(parser, id=parser.prog)


DOCUMENTS = ("completion", "certify page")
"""What prints a script or a page has no JSON."""


@pytest.mark.parametrize("parser", list(parsers()))
def test_every_command_speaks_json(parser):
    assert parser.prog.endswith(DOCUMENTS) or "--json" in parser.format_help()


@pytest.mark.parametrize("main", [quotas.main, kclient_quota_main.main], ids=["quotas", "main"])
def test_every_command_says_its_version(main, capsys):
    commands = COMMANDS if main is quotas.main else [each.name for each in kclient_quota_main._COMMANDS]
    for command in commands:
        with pytest.raises(SystemExit) as ended:
            main([command, "--version"])
        assert ended.value.code == 0
        assert capsys.readouterr().out.endswith(f" {__version__}\n")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "--list --describe --alter"),
        (["aply", "x.yaml"], "there is no command 'aply'; did you mean apply?"),
        (["--bootstrap-server", "b:1", "aply"], "did you mean apply?"),
        (["frobnicate"], "Commands: plan, diff, apply"),
        (["apply", "x.yaml", "--prnue"], "apply: error: unrecognized arguments: --prnue; did you mean --prune?"),
        (["list", "--prefxi", "user=a"], "did you mean --prefix?"),
        (["plan", "x.yaml", "--timeout", "nan"], "write seconds, greater than 0"),
    ],
)
def test_what_is_not_understood_is_said_with_what_would_be(words, said, capsys):
    with pytest.raises(SystemExit) as ended:
        quotas.main(words)
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


def test_options_of_the_cluster_may_stand_before_the_command_and_modes_need_no_dashes(capsys, tmp_path):
    with EmbeddedBroker() as broker:
        server = ["--bootstrap-server", broker.bootstrap_servers]
        (tmp_path / "q.yaml").write_text(
            "version: 1\nquotas:\n- {names: {user: a}, set: {producer_byte_rate: 1.5MiB}}\n"
        )
        assert quotas.main([*server, "apply", str(tmp_path / "q.yaml")]) == 0
        assert quotas.main([*server, "list"]) == 0
        out = capsys.readouterr().out
        assert out.endswith("{user=a}\nproducer_byte_rate:broker_bps=1572864\n")
        assert quotas.main([*server, "alter", "--names=user=a", "--add=consumer_byte_rate=10MB/s"]) == 0
        assert "altered: {user=a}" in capsys.readouterr().err
        assert quotas.main([*server, "list", "--json"]) == 0
        assert '"consumer_byte_rate": 10000000' in capsys.readouterr().out
        for words in (
            ["list", "--names=user=b"],
            ["describe", "--names=user=b"],
            ["configs", "--describe", "--user=b"],
        ):
            assert quotas.main([*words, *server]) == 0
            out, err = capsys.readouterr()
            assert (out.strip(), err.count("\n")) == ("", 1), "nothing is found, and that is said"


SMALL = [[QUOTAS, "--version"], [QUOTAS, "apply", "--help"], [METRICS, "completion", "bash"], [MAIN, "--help"]]
"""What fits into Python's buffer, and is written when all is over; and what argparse prints."""


@contextmanager
def nobody_reads():
    """The end to write to of a pipe whose other end is closed."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        yield writer
    finally:
        os.close(writer)


def buffered(*words, stdout, at_once=False):
    """A command as a shell starts it: what it prints is kept until there is a page of it, or the end; or not."""
    code = f"from {words[0]} import entry; import sys; sys.argv[1:] = {list(words[1:])!r}; entry()"
    env = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    return python("-c", code, stdout=stdout, env=env | ({"PYTHONUNBUFFERED": "1"} if at_once else {}))


@pytest.mark.parametrize("words", [[QUOTAS, "completion", "bash"], *SMALL], ids=" ".join)
def test_who_reads_a_few_lines_only_hears_no_complaint(words):
    with nobody_reads() as writer:
        done = buffered(*words, stdout=writer)
    assert (done.returncode, done.stderr) == (0, "")


def configured(broker):
    with QuotaAdmin({"bootstrap.servers": broker.bootstrap_servers}) as admin:
        return admin.describe_client_quotas(ClientQuotaFilter.all()).result()


def unread(*words, stderr=subprocess.PIPE):
    """`kafka-quotas` whose standard output nobody reads any more: its exit status, what it said, what it cut short."""
    code = f"from kclient_quota.cli.quotas import entry; import sys; sys.argv[1:] = {list(words)!r}; entry()"
    with nobody_reads() as writer:
        words = [sys.executable, "-c", code]
        errors = writer if stderr is None else stderr
        done = subprocess.run(words, check=False, stdout=writer, stderr=errors, text=True, timeout=60)
    return done.returncode, done.stderr or ""


@pytest.mark.parametrize("stderr", [subprocess.PIPE, None], ids=["apply | head", "apply 2>&1 | head"])
def test_work_is_done_though_nobody_reads_the_plan(stderr, tmp_path):
    """A plan of more than a pipe holds: its writing fails before the first entity is altered."""
    entries = "".join(f"- {{names: {{user: u{n}}}, set: {{producer_byte_rate:bps: 900}}}}\n" for n in range(200))
    (tmp_path / "q.yaml").write_text("version: 1\nquotas:\n" + entries)
    file = str(tmp_path / "q.yaml")
    with EmbeddedBroker(brokers=2, topics={"led-by-one": 1}) as broker:
        server = ["--bootstrap-server", broker.bootstrap_servers]

        def first():
            return configured(broker).get(ClientQuotaEntity.of(user="u0"), {}).get("producer_byte_rate")

        assert unread("apply", file, "-y", *server, stderr=stderr) == (0, "")
        assert first() == 900
        broker.create_topic("led-by-both", 2)
        assert unread("reconcile", file, *server, stderr=stderr) == (0, "")
        assert first() == 450
        for before in (900, None):
            assert unread("undo", file, "-y", *server, stderr=stderr) == (0, "")
            assert first() == before


@pytest.mark.parametrize(
    ("module", "words", "status"),
    [
        (QUOTAS, ["diff", "q.yaml"], 4),
        (QUOTAS, ["plan", "q.yaml", "--detailed-exitcode"], 2),
        (QUOTAS, ["plan", "q.yaml"], 0),
        (MAIN, ["doctor", "--client-id=shop", "--plain"], 3),
    ],
    ids=["diff", "plan that answers", "plan", "doctor"],
)
def test_an_answer_is_the_same_though_nobody_reads_all_of_it(module, words, status, tmp_path, monkeypatch):
    """With `pipefail` `diff | head -1` was 0: no differences."""
    monkeypatch.chdir(tmp_path)
    Path("q.yaml").write_text("version: 1\nquotas:\n- {names: {user: a}, set: {producer_byte_rate: 9}}\n")
    with EmbeddedBroker() as broker, nobody_reads() as writer:
        broker.set_quota(client_id="shop", producer_byte_rate=100_000)
        words = [module, *words, "--bootstrap-server", broker.bootstrap_servers]
        done = buffered(*words, stdout=writer, at_once=True)
    assert (done.returncode, done.stderr) == (status, "")


CLOSED = "import os, sys; os.close(1); os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"


@pytest.mark.skipif(os.name == "nt", reason="no shell that closes a stream")
def test_an_answer_to_a_stream_that_a_shell_has_closed_is_none(tmp_path):
    """A backup of `export >&-` is none; what alters something has done so."""
    (tmp_path / "q.yaml").write_text("version: 1\nquotas:\n- {names: {user: a}, set: {producer_byte_rate: 9}}\n")
    lost = "warning: standard output: Bad file descriptor; only what was to be printed is lost\n"
    with EmbeddedBroker() as broker:
        broker.set_quota(user="b", producer_byte_rate=5)
        for words, status, said in (
            (["--list", "--json"], 1, "standard output: Bad file descriptor\n"),
            (["apply", str(tmp_path / "q.yaml"), "-y"], 0, lost),
            (["export"], 1, "standard output: Bad file descriptor\n"),
            (["plan", str(tmp_path / "q.yaml")], 1, "kafka-quotas: [Errno 9] Bad file descriptor\n"),
        ):
            asked = [*words, "--bootstrap-server", broker.bootstrap_servers]
            code = f"from kclient_quota.cli.quotas import entry; import sys; sys.argv[1:] = {asked!r}; entry()"
            done = python("-c", CLOSED, "-c", code)
            assert (done.returncode, done.stderr) == (status, said), words
        assert len(configured(broker)) == 2


@pytest.mark.skipif(os.name == "nt", reason="no shell that closes a stream")
@pytest.mark.parametrize("words", [["-m", "kclient_quota.broker"], ["-m", "kclient_quota", "broker"]], ids=" ".join)
def test_a_broker_serves_without_a_standard_output(words):
    with closed_port() as port:
        pass  # free again
    words = [sys.executable, "-c", CLOSED, *words, "--port", str(port)]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as process:
        try:
            admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{port}", "log_level": 0})
            assert admin.list_topics(timeout=20).brokers
        finally:
            process.terminate()
        assert (process.wait(20), process.stderr.read()) == (0, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device that is always full")
@pytest.mark.parametrize(
    ("module", "words"),
    [
        (QUOTAS, ["apply", "q.yaml", "-y"]),
        (QUOTAS, ["--alter", "--names=user=a", "--add=producer_byte_rate=9", "--json"]),
        (QUOTAS, ["configs", "--alter", "--entity-type=users", "--entity-name=a", "--add-config=producer_byte_rate=9"]),
        (METRICS, ["--alter", "--name=all", "--metrics=*"]),
        (MAIN, ["dashboards", "--rules=rules.yaml"]),
    ],
    ids=["apply", "alter", "configs", "metrics", "dashboards"],
)
def test_what_was_done_is_no_failure_for_a_full_disk(module, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("q.yaml").write_text("version: 1\nquotas:\n- {names: {user: a}, set: {producer_byte_rate: 9}}\n")
    with EmbeddedBroker() as broker, Path("/dev/full").open("w") as full:
        asked = words if module == MAIN else [*words, "--bootstrap-server", broker.bootstrap_servers]
        code = f"from {module} import entry; import sys; sys.argv[1:] = {asked!r}; entry()"
        done = python("-c", code, stdout=full)
        assert done.returncode == 0, done.stderr
        said = "warning: standard output: No space left on device; only what was to be printed is lost"
        assert said in done.stderr.splitlines()
        assert module != QUOTAS or configured(broker)


@pytest.mark.parametrize("module", [QUOTAS, MAIN])
def test_files_that_are_nested_without_end_are_one_line(module, tmp_path):
    (tmp_path / "deep").write_text("[" * 100_000)
    words = {
        QUOTAS: ["advise", "--quota", "5", "--usage", str(tmp_path / "deep")],
        MAIN: ["certify", "page", str(tmp_path / "deep")],
    }[module]
    done = python("-c", f"import sys; sys.argv[1:] = {words!r}; import {module} as m; m.entry()")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert "nested thousands of levels deep" in done.stderr


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_names_that_a_terminal_cannot_show_are_escaped(encoding):
    with EmbeddedBroker() as broker:
        broker.set_quota(user="z\u00e9\u65e5", producer_byte_rate=5)
        server = ["--bootstrap-server", broker.bootstrap_servers]
        for words in (
            ["--list", "--json"],
            ["--list", "--output=yaml"],
            ["export"],
            ["configs", "--describe", "--user=z\u00e9\u65e5"],
        ):
            code = (
                f"import sys; sys.argv[1:] = {[*words, *server]!r}; from kclient_quota.cli.quotas import entry; entry()"
            )
            done = subprocess.run(
                [sys.executable, "-c", code],
                check=False,
                capture_output=True,
                timeout=60,
                env={**os.environ, "PYTHONIOENCODING": encoding, "PYTHONUTF8": "0"},
            )
            assert (done.returncode, done.stderr) == (0, b"")
            text = done.stdout.decode(encoding)
            if "--json" in words:
                assert json.loads(text)[0]["entity"] == {"user": "z\u00e9\u65e5"}
            elif "--output=yaml" in words:
                assert yaml.safe_load(text)[0]["entity"] == {"user": "z\u00e9\u65e5"}
            else:
                assert ("z\u00e9\u65e5" in text) is (encoding == "utf-8")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device that is always full")
@pytest.mark.parametrize("words", [[QUOTAS, "completion", "bash"], *SMALL], ids=" ".join)
def test_a_full_disk_is_one_line(words):
    with Path("/dev/full").open("w") as full:
        done = buffered(*words, stdout=full)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "No space left on device" in done.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device that is always full")
def test_what_a_cluster_says_on_a_full_disk_is_one_line_too():
    with EmbeddedBroker() as broker, Path("/dev/full").open("w") as full:
        broker.set_quota(user="a", producer_byte_rate=5)
        for words in (["export"], ["--list", "--json"]):
            done = buffered(QUOTAS, *words, "--bootstrap-server", broker.bootstrap_servers, stdout=full)
            assert (done.returncode, done.stderr) == (1, "standard output: No space left on device\n")


def completed(script, *words):
    """What bash offers for the last of these words."""
    words = list(words)
    ask = f"""{script}
COMP_WORDS=({" ".join(f"'{word}'" for word in words)}) COMP_CWORD={len(words) - 1}
_{words[0].replace("-", "_")}
printf '%s\\n' "${{COMPREPLY[@]}}" """
    done = subprocess.run(["bash", "-c", ask], check=False, capture_output=True, text=True, timeout=60)
    assert not done.stderr
    return set(done.stdout.split())


def test_completion_of_bash(capsys):
    assert quotas.main(["completion", "bash"]) == 0
    script = capsys.readouterr().out
    assert {"apply", "advise", "--list"} <= completed(script, "kafka-quotas", "")
    assert completed(script, "kafka-quotas", "ap") == {"apply"}
    assert completed(script, "kafka-quotas", "apply", "--pr") == {"--prune"}
    assert completed(script, "kafka-quotas", "apply", "--output", "j") == {"json"}
    assert kclient_quota_main.main(["completion", "bash"]) == 0
    script = capsys.readouterr().out
    assert completed(script, "kclient-quota", "rec") == {"receive"}
    assert completed(script, "kclient-quota", "receive", "--otlp-c") == {"--otlp-ca", "--otlp-certificate"}
    assert "client" not in completed(script, "kclient-quota", ""), "that is a word of certify's"
    assert completed(script, "kclient-quota", "certify", "broker", "--bo") == {"--bootstrap-server"}
    assert completed(script, "kclient-quota", "broker", "--po") == {"--port"}
    assert completed(script, "kclient-quota", "demo", "--output", str(Path(__file__).with_suffix(""))) == {__file__}
    assert client_metrics.main(["completion", "bash"]) == 0
    assert completed(capsys.readouterr().out, "kafka-client-metrics", "--desc") == {"--describe"}


@pytest.mark.parametrize("shell", ["zsh", "fish"])
@pytest.mark.parametrize(
    "main", [quotas.main, client_metrics.main, kclient_quota_main.main], ids=["quotas", "metrics", "main"]
)
def test_other_shells_have_a_script_too(main, shell, capsys):
    assert main(["completion", shell]) == 0
    assert "complete" in capsys.readouterr().out  # what they make of it: test_completion.py


def test_quantities():
    from kclient_quota.config import quantity

    assert [quantity(text) for text in ("1048576", "10MB", "1MiB/s", "1.5 kB", "2e6", "1_000", "3GiB", "7B/s")] == [
        1048576,
        10e6,
        2**20,
        1500,
        2e6,
        1000,
        3 * 2**30,
        7,
    ]
    for text in ("", "MB", "10M", "10Mbit/s", "-1", "nan", "1iB", "10mb", "1/s/s"):
        with pytest.raises(ConfigError, match="write it as 1048576, 10MB or 1MiB/s"):
            quantity(text)
