"""How quotas are printed: as KIP-546's draft prints them, as a table, or as rows for JSON and YAML."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kclient_quota.admin.units import QuotaUnit, enforced
from kclient_quota.quota.entity import CLIENT_ID, DEFAULT, ClientQuotaEntity, sanitize

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from kclient_quota.admin.effective import EffectiveQuota
    from kclient_quota.admin.unit_quotas import Listed

Row = dict[str, Any]


def number(value: float) -> str:
    """Whole numbers without a fraction, others as short as they read back."""
    return str(int(value)) if value.is_integer() else repr(value)


def entity_text(entity: ClientQuotaEntity) -> str:
    """`{user=name, client-id=name}`: names sanitized, since they may hold anything; a default is `<default>`."""
    kinds = sorted(entity.entries, key=lambda kind: kind == CLIENT_ID)
    names = ((kind, entity.entries[kind]) for kind in kinds)
    return "{" + ", ".join(f"{kind}={'<default>' if name is DEFAULT else sanitize(name)}" for kind, name in names) + "}"


def list_text(listed: Iterable[Listed]) -> str:
    """The draft's `--list`: an entity, its quotas below it, an empty line between entities."""
    blocks = ["\n".join([entity_text(each.entity), *_quota_lines(each)]) for each in listed]
    return "\n\n".join(blocks)


def _quota_lines(listed: Listed) -> Iterator[str]:
    """What was asked for, and where that is not what brokers enforce, this as well; what does not count is starred."""
    lines: list[tuple[QuotaUnit, bool, float]] = []
    for quota, value in listed.asked.items():
        written = listed.written.get(quota.key)
        lines.append((quota, quota.is_enforced and value != written, value))
    for key, value in listed.written.items():
        if listed.asked.get(enforced(key)) != value:
            lines.append((enforced(key), False, value))
    for quota, is_overridden, value in sorted(lines):
        yield f"{'*' if is_overridden else ''}{quota}={number(value)}"


def describe_text(effective: Iterable[EffectiveQuota]) -> str:
    """The draft's `--describe`: quota, value and the entry it comes from; overridden entries are starred."""
    lines = []
    for quota in effective:
        lines.append(f"{quota.key}={number(quota.value)} {entity_text(quota.decided_by.entity)}")
        lines += [f"*{quota.key}={number(entry.value)} {entity_text(entry.entity)}" for entry in quota.overrides]
    return "\n".join(lines)


def entity_row(entity: ClientQuotaEntity) -> dict[str, str | None]:
    """Types and names as they are, null for a default."""
    return dict(sorted(entity.wire_entries(), key=lambda entry: entry[0] == CLIENT_ID))


def list_rows(listed: Iterable[Listed]) -> list[Row]:
    """`--list` for JSON and YAML; `enforced` is what brokers have."""
    return [
        {
            "entity": entity_row(each.entity),
            "quotas": {str(quota): _plain(value) for quota, value in sorted(each.asked.items())},
            "enforced": {key: _plain(value) for key, value in sorted(each.written.items())},
        }
        for each in listed
    ]


def describe_rows(effective: Iterable[EffectiveQuota]) -> list[Row]:
    """`--describe` for JSON and YAML."""
    return [
        {
            "quota": quota.key,
            "value": _plain(quota.value),
            "entity": entity_row(quota.decided_by.entity),
            "overrides": [
                {"value": _plain(entry.value), "entity": entity_row(entry.entity)} for entry in quota.overrides
            ],
        }
        for quota in effective
    ]


def list_table(listed: Iterable[Listed]) -> str:
    """`--list` with a line per quota."""
    rows = [
        (entity_text(each.entity), str(quota), number(value), number(each.written.get(quota.key, value)))
        for each in listed
        for quota, value in sorted(each.asked.items())
    ]
    return table(("ENTITY", "QUOTA", "VALUE", "PER BROKER"), rows)


def describe_table(effective: Iterable[EffectiveQuota]) -> str:
    """`--describe` with a line per entry."""
    rows = []
    for quota in effective:
        rows.append((quota.key, number(quota.value), entity_text(quota.decided_by.entity), "decides"))
        rows += [(quota.key, number(entry.value), entity_text(entry.entity), "overridden") for entry in quota.overrides]
    return table(("QUOTA", "VALUE", "FROM", ""), rows)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns as wide as they need to be; numbers to the right."""
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    is_number = [bool(rows) and all(row[at].lstrip("-")[:1].isdecimal() for row in rows) for at in range(len(head))]

    def line(cells: Sequence[str]) -> str:
        placed = (
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(cells, widths, is_number, strict=True)
        )
        return "  ".join(placed).rstrip()

    return "\n".join(map(line, (head, *rows)))


def alteration_lines(
    entity: ClientQuotaEntity, before: Mapping[str, float], ops: Mapping[str, float | None]
) -> list[str]:
    """What changes of one entity: `+` is added, `~` changed, `-` removed."""
    lines = []
    for key, value in sorted(ops.items()):
        old = before.get(key)
        if value is None:
            lines.append(f"- {entity_text(entity)} {enforced(key)}={'?' if old is None else number(old)}")
        elif old is None:
            lines.append(f"+ {entity_text(entity)} {enforced(key)}={number(value)}")
        else:
            lines.append(f"~ {entity_text(entity)} {enforced(key)}={number(old)} -> {number(value)}")
    return lines


def _plain(value: float) -> float | int:
    return int(value) if value.is_integer() else value
