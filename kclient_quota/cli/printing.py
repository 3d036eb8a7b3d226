"""`--output`: text, a table, JSON or YAML."""

import json
from collections.abc import Callable
from typing import Any

import yaml

FORMATS = ("text", "table", "json", "yaml")


def rendered(output: str, text: Callable[[], str], table: Callable[[], str], rows: Callable[[], list[Any]]) -> str:
    """What is printed in the format that was asked for, without a line end."""
    if output == "json":
        return json.dumps(rows(), indent=2, ensure_ascii=False)
    if output == "yaml":
        return yaml.safe_dump(rows(), sort_keys=False, allow_unicode=True).rstrip("\n")
    return table() if output == "table" else text()
