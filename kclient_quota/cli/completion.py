"""`completion bash|zsh|fish`: a script that completes commands, options and their choices."""

import argparse
import shlex
from collections.abc import Callable, Iterable
from typing import Any, Final

SHELLS = ("bash", "zsh", "fish")

Parsers = Callable[[], Iterable[argparse.ArgumentParser]]

FLAG: Final = None
"""Of an option that takes no value; one that takes any has no choices."""
Words = dict[str, tuple[str, ...] | None]


def add_completion(commands: Any, parsers: Parsers) -> None:
    """Add the command to a parser's subparsers.

    Args:
        commands: the subparsers.
        parsers: gives the parsers whose words are completed; of the same program.
    """
    parser = commands.add_parser(
        "completion",
        help="a script for bash, zsh or fish that completes this command",
        description="Prints a script. bash: source <(PROGRAM completion bash); zsh: the same with zsh; "
        "fish: PROGRAM completion fish | source.",
    )
    parser.add_argument("shell", choices=SHELLS)
    parser.set_defaults(run=lambda options: _print(options.shell, list(parsers())))


def _print(shell: str, parsers: list[argparse.ArgumentParser]) -> int:
    print(completion(shell, parsers))
    return 0


def completion(shell: str, parsers: list[argparse.ArgumentParser]) -> str:
    """The script.

    Args:
        shell: one of SHELLS.
        parsers: of one program.
    """
    program = parsers[0].prog
    words: dict[str, Words] = {}
    for parser in parsers:
        _collect(parser, "", words)
    return {"bash": _bash, "zsh": _zsh, "fish": _fish}[shell](program, words)


def _collect(parser: argparse.ArgumentParser, path: str, words: dict[str, Words]) -> None:
    """What may stand after each command, such as "/certify/broker": commands, choices, options with theirs."""
    found = words.setdefault(path, {})
    for action in parser._actions:  # noqa: SLF001 - argparse has no other way to ask
        choices = tuple(map(str, action.choices or ()))
        if action.help == argparse.SUPPRESS:
            continue
        if action.option_strings:
            takes = FLAG if action.nargs == 0 else choices
            found.update((option, takes) for option in action.option_strings if option.startswith("--"))
        else:
            found.update((choice, FLAG) for choice in choices)
        if isinstance(action.choices, dict):
            for name, known in action.choices.items():
                _collect(known, f"{path}/{name}", words)


def _bash(program: str, words: dict[str, Words]) -> str:
    function = f"_{program.replace('-', '_')}"
    values = _cases(
        f"{path}:{option}) words={shlex.quote(' '.join(choices))} ;;"
        for path, options in words.items()
        for option, choices in options.items()
        if choices is not FLAG
    )
    # what may stand there first, then options, which begin with "-"
    names = _cases(
        f"{path or chr(39) * 2}) words={shlex.quote(' '.join(sorted(options, reverse=True)))} ;;"
        for path, options in words.items()
    )
    return f"""{function}() {{
    local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}} at= words= each
    for each in "${{COMP_WORDS[@]:1:$((COMP_CWORD-1))}}"; do
        case $at/$each in {_commands(words, "|")}) at=$at/$each ;; esac
    done
    case $at:$before in
{values}
    *) case $at in
{names}
        esac ;;
    esac
    COMPREPLY=($(compgen -W "$words" -- "$word"))
    case ${{words:--}}/$word in [!-]*|*/-*) ;; *) COMPREPLY+=($(compgen -f -- "$word")) ;; esac
}}
complete -o filenames -F {function} {program}"""


def _commands(words: dict[str, Words], between: str) -> str:
    return between.join(path for path in words if path) or "-"


def _cases(lines: Iterable[str]) -> str:
    return "\n".join(f"        {line}" for line in lines) or "        -) ;;"


def _zsh(program: str, words: dict[str, Words]) -> str:
    return f"""(( $+functions[compdef] )) || {{ autoload -U compinit && compinit -i; }}
autoload -U +X bashcompinit && bashcompinit
{_bash(program, words)}"""


def _fish(program: str, words: dict[str, Words]) -> str:
    at = f"__{program.replace('-', '_')}_at"
    lines = [
        f"""function {at}
    set -l at ''
    for each in (commandline -opc)[2..]
        switch "$at/$each"
            case {_commands(words, " ")}
                set at "$at/$each"
        end
    end
    test "$at" = "$argv[1]"
end"""
    ]
    for path, options in words.items():
        when = f"complete -c {program} -n {shlex.quote(f'{at} {path}' if path else at + ' ' + chr(34) * 2)}"
        lines += [f"{when} -f -a {shlex.quote(option)}" for option in options if not option.startswith("--")]
        lines += [f"{when} -l {option[2:]}{_taken(choices)}" for option, choices in options.items() if option[0] == "-"]
    return "\n".join(lines)


def _taken(choices: tuple[str, ...] | None) -> str:
    if choices is FLAG:
        return ""
    return f" -x -a {shlex.quote(' '.join(choices))}" if choices else " -r"
