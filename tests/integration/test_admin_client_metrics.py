import re

import pytest

from kclient_quota.broker import EmbeddedBroker
from kclient_quota.cli import client_metrics


@pytest.fixture(scope="module")
def broker():
    with EmbeddedBroker() as running:
        yield running


@pytest.fixture
def run(broker, capsys):
    def command(*arguments, status=0):
        got = client_metrics.main(["--bootstrap-server", broker.bootstrap_servers, *arguments])
        out, err = capsys.readouterr()
        assert got == status, err
        return out if status == 0 else err

    return command


def test_the_life_of_a_subscription(run):
    assert run("--list") == "\n"
    alter = [
        "--alter",
        "--name=BASIC",
        "--interval=60000",
        "--metrics=org.apache.kafka.consumer.,a",
        "--match=client_id=b",
    ]
    assert run(*alter) == "Altered client metrics config for BASIC.\n"
    assert run("--list") == "BASIC\n"
    described = (
        "Client metrics configs for BASIC are:\n"
        "  interval.ms=60000\n  match=client_id=b\n  metrics=org.apache.kafka.consumer.,a\n"
    )
    assert run("--describe", "--name=BASIC") == described
    assert run("--describe") == described
    run("--alter", "--name=BASIC", "--interval=", "--match=")
    assert "  interval.ms=300000\n  match=\n" in run("--describe", "--name=BASIC")
    assert run("--delete", "--name=BASIC") == "Deleted client metrics config for BASIC.\n"
    assert run("--delete", "--name=BASIC") == "Deleted client metrics config for BASIC.\n"
    missing = "The client metric resource BASIC doesn't exist and doesn't have dynamic config.\n"
    assert run("--describe", "--name=BASIC") == missing


def test_a_generated_name(run):
    name = re.fullmatch(
        r"Altered client metrics config for ([\w-]{22})\.\n", run("--alter", "--generate-name", "--metrics=*")
    )
    assert name is not None
    assert run("--list") == f"{name[1]}\n"
    run("--delete", f"--name={name[1]}")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "Command must include exactly one action: --alter, --delete, --describe or --list."),
        (["--list", "--describe"], "exactly one action"),
        (["--alter"], "One of --name or --generate-name must be specified with --alter."),
        (["--alter", "--name=a", "--generate-name"], "One of --name or --generate-name"),
        (["--delete"], "must be specified with --delete"),
        (["--list", "--generate-name"], "can only be used with --alter"),
        (["--alter", "--name=a", "--interval=soon"], "milliseconds"),
        (["--alter", "--name=a", "--interval=99"], "Error while executing client metrics command : "),
        (["--alter", "--name=a"], "Error while executing client metrics command : "),
        (["--alter", "--name=", "--metrics=*"], "a client-metrics subscription needs one"),
        (["--list", "--command-config=/none"], "Error while executing client metrics command : "),
    ],
)
def test_what_is_refused(run, arguments, words):
    assert words in run(*arguments, status=1)
