"""docs/reference/configuration.md: our keys, their defaults and meaning, from `kclient_quota.config`."""

import dataclasses
import enum
import inspect
import re

from docs.generate.page import cell, head
from kclient_quota.config import QUOTA_KEYS, QuotaConfig

# Where a key's field is not simply its own name with underscores.
_FIELDS = {"client.quota.callback.class": "callback", "interceptor.classes": "interceptors"}


def page() -> str:
    """The whole page."""
    meanings = _meanings()
    defaults = {field.name: field.default for field in dataclasses.fields(QuotaConfig)}
    rows = [
        f"| `{key}` | {_default(defaults[_field(key)])} | {_choices(defaults[_field(key)])}{cell(meanings[_field(key)])} |"
        for key in QUOTA_KEYS
    ]
    return "\n".join(
        [
            head(
                "Configuration keys",
                "All are optional, and stand beside confluent_kafka's in the same dictionary; they are taken out before "
                "librdkafka sees it. A misspelt key, ours or librdkafka's, is an error that names the one that was meant.",
            ),
            "| key | default | meaning |",
            "|---|---|---|",
            *rows,
            "",
            "`enable.metrics.push` (librdkafka's own key, `true`) switches client telemetry on and off: ours takes the place of "
            "librdkafka's, so that a client has one instance id.",
            "",
            "Defaults of librdkafka that we change, only where you set nothing: see "
            "[what changes](../how-to/migrate.md#from-confluent-kafka).",
            "",
        ]
    )


def _field(key: str) -> str:
    return _FIELDS.get(key, key.removeprefix("quota.").replace(".", "_"))


def _meanings() -> dict[str, str]:
    """The fields' lines in the docstring of `QuotaConfig`."""
    text = inspect.cleandoc(QuotaConfig.__doc__ or "").partition("Attributes:")[2]
    entries = re.split(r"\n {4}(?=\w+: )", text)
    return {name: meaning for name, _, meaning in (entry.strip().partition(": ") for entry in entries) if name}


def _default(value: object) -> str:
    if value is None or value == () or value is dataclasses.MISSING:
        return ""
    return f"`{value.value if isinstance(value, enum.Enum) else value}`"


def _choices(value: object) -> str:
    return (
        f"one of {', '.join(f'`{choice.value}`' for choice in type(value))}: " if isinstance(value, enum.Enum) else ""
    )
