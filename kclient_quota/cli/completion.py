"""`completion bash|zsh|fish`: a script that completes commands, options and their choices."""

import argparse
import shlex
from collections.abc import Callable, Iterable
from typing import Any

SHELLS = ("bash", "zsh", "fish")

Parsers = Callable[[], Iterable[argparse.ArgumentParser]]


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
    words: dict[str, dict[str, tuple[str, ...]]] = {"": {}}
    for parser in parsers:
        _collect(parser, "", words)
    return {"bash": _bash, "zsh": _zsh, "fish": _fish}[shell](program, words)


def _collect(parser: argparse.ArgumentParser, command: str, words: dict[str, dict[str, tuple[str, ...]]]) -> None:
    """Options of each command with their choices; of the empty one also the commands."""
    found = words.setdefault(command, {})
    for action in parser._actions:  # noqa: SLF001 - argparse has no other way to ask
        choices = action.choices
        if isinstance(choices, dict) and not action.option_strings:
            for name, known in choices.items():
                words[""][name] = ()
                _collect(known, name, words)
        elif action.option_strings:
            for option in action.option_strings:
                if option.startswith("--"):
                    found[option] = tuple(map(str, choices or ()))
        else:
            for choice in choices or ():
                found[str(choice)] = ()


def _bash(program: str, words: dict[str, dict[str, tuple[str, ...]]]) -> str:
    function = f"_{program.replace('-', '_')}"
    values = _cases(
        f"{command or '-'}:{option}) words={shlex.quote(' '.join(choices))} ;;"
        for command, options in words.items()
        for option, choices in options.items()
        if choices
    )
    names = _cases(f"{command or '-'}) words={shlex.quote(' '.join(options))} ;;" for command, options in words.items())
    commands = "|".join(command for command in words if command) or "-"
    return f"""{function}() {{
    local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}} command=- words= each
    for each in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
        case $each in {commands}) command=$each; break ;; esac
    done
    case $command:$before in
{values}
    esac
    if [ -z "$words" ]; then
        case $command in
{names}
        esac
    fi
    COMPREPLY=($(compgen -W "$words" -- "$word"))
    if [ -z "$word" ] || [ "${{word#-}}" = "$word" ]; then
        COMPREPLY+=($(compgen -f -- "$word"))
    fi
}}
complete -o filenames -F {function} {program}"""


def _cases(lines: Iterable[str]) -> str:
    return "\n".join(f"        {line}" for line in lines) or "        -) ;;"


def _zsh(program: str, words: dict[str, dict[str, tuple[str, ...]]]) -> str:
    return f"autoload -U +X bashcompinit && bashcompinit\n{_bash(program, words)}"


def _fish(program: str, words: dict[str, dict[str, tuple[str, ...]]]) -> str:
    commands = " ".join(command for command in words if command)
    lines = []
    for command, options in words.items():
        none_yet = f"not __fish_seen_subcommand_from {commands}" if commands else "true"
        when = shlex.quote(f"__fish_seen_subcommand_from {command}" if command else none_yet)
        for option, choices in options.items():
            if not option.startswith("--"):
                lines.append(f"complete -c {program} -n {when} -a {shlex.quote(option)}")
                continue
            given = f" -x -a {shlex.quote(' '.join(choices))}" if choices else ""
            lines.append(f"complete -c {program} -n {when} -l {option[2:]}{given}")
    return "\n".join(lines)
