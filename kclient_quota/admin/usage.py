"""Measured rates: JSON lines, CSV, a Prometheus page of brokers, or rows such as those of the Spark job `usage`."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from typing import TYPE_CHECKING, Any

from kclient_quota.errors import ConfigError, misread

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

Usage = tuple[str, float]
"""An entity in words and its rate on one broker, in bytes per second."""

_SERIES = re.compile(r"kafka_server_(produce|fetch)_byte_rate\{(.*)\}\s+(\S+)", re.IGNORECASE)
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_OF_A_ROLE = {"producer": "producer_byte_rate", "consumer": "consumer_byte_rate"}
_RATES = ("rate", "byte_rate", "byte_rate_max", *_OF_A_ROLE.values())
_KEYS = {"produce": "producer_byte_rate", "fetch": "consumer_byte_rate"}


def parse_usage(text: str, name: str) -> list[Usage]:
    """Entities and rates.

    Args:
        text: JSON lines or CSV with user, client_id and rate (or producer_byte_rate, consumer_byte_rate), or a
            Prometheus page with kafka_server_produce_byte_rate and kafka_server_fetch_byte_rate.
        name: for messages.

    Raises:
        ConfigError: it is none of these, or holds no rate; the message names the line.
    """
    start = text.lstrip()[:1]
    if start in {"{", "["}:
        return usage_of_rows(_json_rows(text, name), name)
    found = list(_of_page(text))
    return found or usage_of_rows(enumerate(csv.DictReader(io.StringIO(text)), start=2), name)


def usage_of_rows(rows: Iterable[tuple[int, Mapping[str, Any]]], name: str) -> list[Usage]:
    """Entities and rates of rows with their numbers; a row without a rate is left out.

    Raises:
        ConfigError: a rate is no number, or there is none at all.
    """
    found = list(_of_rows(rows, name))
    if not found:
        raise ConfigError(f"{name}: it holds no rate; wanted are fields user, client_id and one of {', '.join(_RATES)}")
    return found


def _json_rows(text: str, name: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise ConfigError(f"{name}:{number}: this is no JSON: {misread(error)}") from error
        for each in row if isinstance(row, list) else [row]:
            if not isinstance(each, dict):
                raise ConfigError(f'{name}:{number}: an object is wanted, such as {{"user": "a", "rate": 1}}')
            yield number, each


def _of_rows(rows: Iterable[tuple[int, Mapping[str, Any]]], name: str) -> Iterator[Usage]:
    for number, row in rows:
        for field in _RATES:
            if row.get(field) in {None, ""}:
                continue
            try:
                rate = float(row[field])
            except (TypeError, ValueError) as error:
                raise ConfigError(f"{name}:{number}: {field}={row[field]!r} is no number") from error
            if math.isfinite(rate):
                kind = field if field in _OF_A_ROLE.values() else _OF_A_ROLE.get(str(row.get("role")))
                yield _entity(row, kind), rate


def _of_page(text: str) -> Iterator[Usage]:
    for kind, labels, value in _SERIES.findall(text):
        rate = float(value)
        if math.isfinite(rate):
            yield _entity(dict(_LABEL.findall(labels)), _KEYS[kind.lower()]), rate


def _entity(row: Mapping[str, Any], quota: str | None) -> str:
    names = {"user": row.get("user"), "client-id": row.get("client_id", row.get("client-id"))}
    text = ", ".join(f"{kind}={name}" for kind, name in names.items() if name)
    return f"{{{text}}}" + (f" {quota}" if quota else "")
