import sys

import pytest

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


def test_ctrl_c_is_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_options: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("kclient_quota.cli.demo.run", interrupted)
    assert main(["demo"]) == 130


def test_a_missing_extra_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "kclient_quota.demo.run", None)
    assert main(["demo"]) == 1
    assert "pip install 'kclient-quota[demo]'" in capsys.readouterr().err
