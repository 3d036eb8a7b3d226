"""YAML as nodes, which know their lines, of a file that somebody else may have written."""

import json
import re
from typing import Any

import yaml

from kclient_quota.errors import ConfigError

# libyaml's, where PyYAML was built with it, is ten times as fast
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_DEEPEST = 100
"""A file of quotas has five levels. libyaml's nodes are composed each within the one before, and some 30,000 of them
overrun the stack."""


def yaml_node(text: str, name: str) -> yaml.Node | None:
    """The document's root; None of an empty one.

    Args:
        text: YAML, or JSON, with surrogates or without.
        name: for messages.

    Raises:
        ConfigError: it is no YAML, or nests too deep; as `name:line: what`.
    """
    text = _without_surrogates(text)
    try:
        _refuse_deep(text, name)
        return yaml.compose(text, Loader=_LOADER)
    except yaml.MarkedYAMLError as error:
        raise ConfigError(f"{name}:{_line(error.problem_mark)}: this is no YAML: {error.problem}") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"{name}: this is no YAML: {error}") from error


def _refuse_deep(text: str, name: str) -> None:
    depth = 0
    for event in yaml.parse(text, Loader=_LOADER):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > _DEEPEST:
            raise ConfigError(f"{name}:{_line(event.start_mark)}: lists and maps within each other, {_DEEPEST} deep")


def _line(mark: Any) -> int:  # PyYAML's or libyaml's
    return mark.line + 1 if mark else 1


def _without_surrogates(text: str) -> str:
    r"""JSON in ASCII has two escapes, `\ud83d\ude00`, for what YAML has one of another form, and refuses both."""
    if not text.lstrip("\ufeff \t\r\n").startswith("{"):
        return text
    return re.sub(r"\\\\|\\u[dD][89abAB]\w\w\\u[dD][c-fC-F]\w\w", _as_one, text)


def _as_one(found: re.Match[str]) -> str:
    try:
        return str(json.loads(f'"{found[0]}"')) if found[0].startswith("\\u") else found[0]
    except ValueError:  # no hexadecimal digits: YAML says where
        return found[0]
