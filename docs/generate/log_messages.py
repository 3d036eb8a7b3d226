"""docs/reference/log-messages.md: every line that the package logs, with cause and remedy where one is needed."""

import ast

from docs.generate.log_causes import CAUSES
from docs.generate.page import cell, head, modules

_LEVELS = {"info": "INFO", "warning": "WARNING", "error": "ERROR", "exception": "ERROR"}
_ABOUT_A_CLIENT = ("Client %s", "Producer %s", "Consumer %s")
_SHORTEST = 20
_LOGGERS = {"log", "logger", "_LOG"}


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
        cause, remedy = cause_of(message)
        parts.append(f"| {cell(message)} | {level} | {cause} | {remedy} |")
    return "\n".join(parts) + "\n"


def messages() -> list[tuple[str, str]]:
    """Message and level, each once."""
    found: dict[tuple[str, str], None] = {}
    for tree in modules():
        for node in ast.walk(tree):
            for said in _said(node):
                found[said] = None
    return sorted(found)


def _said(node: ast.AST) -> list[tuple[str, str]]:
    """What is logged here; cores, which log nothing themselves, give texts about a client to who does."""
    if isinstance(node, ast.JoinedStr):
        text = _text(node) or ""
        return [(text, "WARNING")] if text.startswith(_ABOUT_A_CLIENT) and len(text) > _SHORTEST else []
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args):
        return []
    level, text = _LEVELS.get(node.func.attr), _text(node.args[0])
    is_logger = isinstance(node.func.value, ast.Name) and node.func.value.id in _LOGGERS
    return [(text, level)] if is_logger and level and text and text != "%s" else []


def _text(node: ast.expr) -> str | None:
    """A message that is written down where it is logged; messages that are made elsewhere are not found."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(part.value if isinstance(part, ast.Constant) else "%s" for part in node.values)
    return None


def cause_of(message: str) -> tuple[str, str]:
    message = message.replace("%r", "%s").replace("%d", "%s")
    for beginning, told in CAUSES.items():
        if message.startswith(beginning.replace("%r", "%s").replace("%d", "%s")):
            return told
    return "", ""
