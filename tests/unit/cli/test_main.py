import ast
import sys
from pathlib import Path

import pytest

import kclient_quota
from kclient_quota.cli.main import _COMMANDS, main


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    assert ended.value.code == 0
    told = capsys.readouterr().out
    assert all(command.name in told for command in _COMMANDS)


@pytest.mark.parametrize("command", [command.name for command in _COMMANDS])
def test_every_command_has_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([command, "--help"])
    assert ended.value.code == 0
    assert "usage: kclient-quota" in capsys.readouterr().out


@pytest.mark.parametrize("argv", [[], ["nonsense"], ["demo", "--nonsense"]])
def test_wrong_options_end_with_two(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(argv)
    assert ended.value.code == 2
    assert "usage" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["broker", "--qouta", "x"], "usage: kclient-quota broker"),
        (
            ["broker", "--qouta", "x"],
            "arguments: --qouta x; did you mean --quota? See kclient-quota broker --help",
        ),
        (["simulate", "--client=8", "--sedds=3"], "did you mean --seed"),
        (["doctor", "--zzz"], "unrecognized arguments: --zzz. See kclient-quota doctor --help"),
        (
            ["certify", "broker", "--onyl", "x"],
            "certify broker: error: unrecognized arguments: --onyl x; did you mean --only",
        ),
        (["demo", "--quota", "0"], "write a number such as 1048576, 10MB or 1MiB/s"),
        (["completion", "bash", "--zzz"], "unrecognized arguments: --zzz"),
    ],
)
def test_a_misspelt_option_is_told_by_its_command(
    argv: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(argv)
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


def test_a_driver_that_there_is_not_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["certify", "client", "--", "no-such-driver"]) == 2
    assert capsys.readouterr().err == (
        "kclient-quota: no-such-driver: there is no such program to start; name the driver after --\n"
    )


def test_ctrl_c_is_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_options: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("kclient_quota.cli.demo.run", interrupted)
    assert main(["demo"]) == 130


def test_no_memory_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def full(_options: object) -> int:
        raise MemoryError

    monkeypatch.setattr("kclient_quota.cli.demo.run", full)
    assert main(["demo"]) == 1
    remedy = "give it more (ulimit -v, the container's limit)"
    assert capsys.readouterr().err == f"kclient-quota: there is no memory left for this process; {remedy}\n"


def test_a_missing_extra_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "kclient_quota.demo.run", None)
    assert main(["demo"]) == 1
    assert "pip install 'kclient-quota[demo]'" in capsys.readouterr().err


def test_handlers_of_signals_take_no_lock() -> None:
    """`Event.set` waits for a lock that whoever is interrupted in `wait`, or in `set` by a second signal, has."""
    for file in Path(kclient_quota.__file__).parent.rglob("*.py"):
        text = file.read_text(encoding="utf-8")
        for call in ast.walk(ast.parse(text)) if "signal" in text else ():
            if isinstance(call, ast.Call) and ast.unparse(call.func) == "signal.signal":
                assert ".set()" not in ast.unparse(call), f"{file}:{call.lineno}"
