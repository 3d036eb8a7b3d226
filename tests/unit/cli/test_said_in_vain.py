"""Options that would say nothing are refused."""

from collections.abc import Callable

import pytest

from kclient_quota.cli import client_metrics, quotas
from kclient_quota.cli import main as kclient_quota_main

WHERE = ["--bootstrap-server", "127.0.0.1:1", "--timeout", "0.1"]


def _ended(main: Callable[[list[str]], int], argv: list[str]) -> object:
    try:
        return main(argv)
    except SystemExit as ended:
        return ended.code


@pytest.mark.parametrize(
    ("argv", "option"),
    [
        (["top", "--once", "--from-topic", ""], "--from-topic"),
        (["receive", "--from-topic", "a", "--group", "", "--jsonl", "j"], "--group"),
        (["receive", "--from-topic", "a", "--jsonl="], "--jsonl"),
        (["doctor", "--client-id="], "--client-id"),
    ],
)
def test_an_empty_value(argv: list[str], option: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert _ended(kclient_quota_main.main, argv) == 2
    assert f"{option} is empty" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--list", "--names", "", *WHERE], "--names is empty"),
        (["undo", "--journal", "", *WHERE], "--journal is empty"),
        (["undo", *WHERE, ""], "what stands behind 0.1 is empty"),
        (["configs", "--alter", "--entity-type=users", "--entity-name", "", *WHERE], "give --entity-default"),
        (["configs", "--describe", "--client=", *WHERE], "give --entity-default"),
        (["configs", "--alter", "--user=a", "--add-config=a=1,b=2", "--delete-config=b", *WHERE], "b: add or delete"),
        (["configs", "--alter", "--user=a", "--user=b", "--add-config=producer_byte_rate=1", *WHERE], "Duplicate"),
        (["configs", "--describe", "--user=a", "--add-config=producer_byte_rate=1", *WHERE], "go with --alter only"),
        (["advise", "--quota=100", "--topic=orders"], "say where it is with --bootstrap-server"),
        (["--alter", "--names=user=a", "--add=a=1", "--capacity=10", "--capacity=20", *WHERE], "stands in it twice"),
    ],
)
def test_of_quotas(argv: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert _ended(quotas.main, argv) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--describe", "--interval", "5"], "can only be used with --alter"),
        (["--list", "--match", ""], "can only be used with --alter"),
        (["--list", "--name", "x"], "cannot be used with --list"),
        (["--alter", "--name", ""], "a client-metrics subscription needs one"),
        (["--alter", "--name", "x", "--interval", "", "--match="], "did not accept a connection"),
    ],
)
def test_of_client_metrics(argv: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert _ended(client_metrics.main, [*WHERE, *argv]) in {1, 2}
    assert said in capsys.readouterr().err


def test_the_host_of_no_page(capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["receive", "--from-topic", "a", "--jsonl", "j", "--metrics-host", "0.0.0.0", *WHERE]
    assert _ended(kclient_quota_main.main, argv) == 2
    assert "--metrics-host is the page's" in capsys.readouterr().err
