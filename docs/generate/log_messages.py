"""docs/reference/log-messages.md: every line that the package logs, with cause and remedy where one is needed."""

import ast

from docs.generate.log_causes import CAUSES
from docs.generate.page import cell, head, modules

_LEVELS = {"info": "INFO", "warning": "WARNING", "error": "ERROR", "exception": "ERROR"}
_LOGGERS = {"log", "logger", "_log", "_logger", "LOG", "LOGGER"}


def page() -> str:
    """The whole page."""
    parts = [
        head(
            "Log messages",
            "Loggers are `kclient_quota` and `kclient_telemetry` and those below them. `%s` and the like stand for names and "
            "numbers. A message that is not here comes from librdkafka (logger of your own, or standard error) or from "
            "confluent_kafka.",
        ),
        "| message | level | cause | what to do |",
        "|---|---|---|---|",
    ]
    for message, level in messages():
        cause, remedy = _cause(message)
        parts.append(f"| {cell(message)} | {level} | {cause} | {remedy} |")
    return "\n".join(parts) + "\n"


def messages() -> list[tuple[str, str]]:
    """Message and level, client messages first, each once."""
    found: dict[tuple[str, str], None] = {}
    for tree in modules():
        for node in ast.walk(tree):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and isinstance(node.func.value, ast.Name)
            ):
                level = _LEVELS.get(node.func.attr)
                text = _text(node.args[0]) if node.args else None
                if level and text and node.func.value.id in _LOGGERS:
                    found[(text, level)] = None
    return sorted(found)


def _text(node: ast.expr) -> str | None:
    """A message that is written down where it is logged; messages that are made elsewhere are not found."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(part.value if isinstance(part, ast.Constant) else "%s" for part in node.values)
    return None


def _cause(message: str) -> tuple[str, str]:
    for beginning, told in CAUSES.items():
        if message.startswith(beginning):
            return told
    return "", ""
