"""What a file of quotas would change: in what was asked for, on the brokers, and for those who are held to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kclient_quota.admin.effective import EffectiveQuotas, QuotaEntry
from kclient_quota.admin.output import entity_row, entity_text, number
from kclient_quota.admin.units import enforced

if TYPE_CHECKING:
    from kclient_quota.admin.quota_file import QuotaFile
    from kclient_quota.admin.units import Configured, QuotaUnit, Written
    from kclient_quota.quota.entity import ClientQuotaEntity


@dataclass(frozen=True, slots=True)
class Change:
    """One quota that is added, changed or removed.

    Attributes:
        entity: whose.
        quota: which, in the unit it is asked for.
        before: its value, None when it is added.
        after: its value, None when it is removed.
    """

    entity: ClientQuotaEntity
    quota: QuotaUnit
    before: float | None
    after: float | None

    @property
    def action(self) -> str:
        """Add, change or remove."""
        if self.before is None:
            return "add"
        return "change" if self.after is not None else "remove"

    def __str__(self) -> str:
        where = f"{entity_text(self.entity)} {self.quota}"
        if self.before is None:
            return f"+ {where}={_number(self.after)}"
        if self.after is None:
            return f"- {where}={_number(self.before)}"
        return f"~ {where}={_number(self.before)} -> {_number(self.after)}"


@dataclass(frozen=True, slots=True)
class EffectiveChange:
    """What changes for those whom an entry covers, per broker.

    Attributes:
        entity: the entry.
        key: Kafka's name of the quota.
        before: the entry that decided, None without a limit.
        after: the entry that will decide, None without a limit.
    """

    entity: ClientQuotaEntity
    key: str
    before: QuotaEntry | None
    after: QuotaEntry | None

    def __str__(self) -> str:
        before, after = (self._side(entry) for entry in (self.before, self.after))
        return f"  {entity_text(self.entity)} {self.key}: {before} -> {after}"

    def _side(self, entry: QuotaEntry | None) -> str:
        if entry is None:
            return "no limit"
        source = "" if entry.entity == self.entity else f" of {entity_text(entry.entity)}"
        return f"{number(entry.value)}{source}"


@dataclass(frozen=True, slots=True)
class Plan:
    """A plan, to be looked at before it is applied.

    Attributes:
        changes: of what was asked for, in the order of their entities.
        derived: what is written to brokers beyond these changes: worked out of bps and shares, or drifted from it.
        effective: what follows for those who are held to it.
        unmanaged: how many quotas are neither changed nor in the file.
    """

    changes: tuple[Change, ...]
    derived: tuple[Change, ...]
    effective: tuple[EffectiveChange, ...]
    unmanaged: int

    def __bool__(self) -> bool:
        """Whether there is anything to do."""
        return bool(self.changes or self.derived)

    @property
    def removes(self) -> int:
        """How many quotas go that somebody has set."""
        return self.count("remove")

    def count(self, action: str) -> int:
        """How many changes add, change or remove."""
        return sum(change.action == action for change in self.changes)

    def __str__(self) -> str:
        lines = [str(change) for change in self.changes]
        if self.derived:
            lines += [*([""] if lines else []), "worked out of bps and shares, per broker:", *self.derived_lines()]
        if self.effective:
            lines += ["", "effective, per broker:", *map(str, self.effective)]
        summary = ", ".join(f"{self.count(action)} to {action}" for action in ("add", "change", "remove"))
        stay = f"; {self.unmanaged} that the file does not manage stay as they are" if self.unmanaged else ""
        derived = f", {len(self.derived)} to work out" if self.derived else ""
        return "\n".join([*lines, *([""] if lines else []), f"{summary}{derived}{stay}"])

    def derived_lines(self) -> list[str]:
        """What is worked out, a line each."""
        return [f"  {change}" for change in self.derived]

    def rows(self) -> dict[str, Any]:
        """The same for JSON and YAML."""
        return {
            **self.doing(),
            "effective": [
                {
                    "entity": entity_row(each.entity),
                    "quota": each.key,
                    "before": _side_row(each.before),
                    "after": _side_row(each.after),
                }
                for each in self.effective
            ],
            "unmanaged": self.unmanaged,
        }

    def doing(self) -> dict[str, Any]:
        """All that carrying it out would alter, and nothing that others may change without altering that."""
        return {
            "changes": [_change_row(change) for change in self.changes],
            "derived": [_change_row(change) for change in self.derived],
        }


def asked_after(asked: Configured, file: QuotaFile, *, prune: bool = False) -> Configured:
    """What is asked for once a file is applied.

    Args:
        asked: what is asked for now.
        file: what it sets is set, what it removes is removed, everything else stays.
        prune: what the file does not set goes as well.
    """
    after: Configured = {} if prune else dict(asked)
    for entry in file.entries:
        values = {quota: value for quota, value in after.get(entry.entity, {}).items() if quota not in entry.unwanted}
        after[entry.entity] = {**values, **entry.wanted}
    return {entity: values for entity, values in after.items() if values}


def make_plan(
    file: QuotaFile, before: Configured, after: Configured, written_before: Written, written_after: Written
) -> Plan:
    """What differs between now and then.

    Args:
        file: what is managed.
        before: what is asked for now.
        after: what shall be asked for.
        written_before: what brokers have now.
        written_after: what they shall have.
    """
    changes = [
        Change(entity, quota, old.get(quota), new.get(quota))
        for entity in dict.fromkeys((*after, *before))
        for old, new in ((before.get(entity, {}), after.get(entity, {})),)
        for quota in sorted({*old, *new})
        if old.get(quota) != new.get(quota)
    ]
    managed = {(change.entity, change.quota) for change in changes}
    managed |= {(entry.entity, quota) for entry in file.entries for quota in entry.wanted}
    unmanaged = sum((entity, quota) not in managed for entity, values in before.items() for quota in values)
    derived = _derived(changes, written_before, written_after)
    return Plan(tuple(changes), tuple(derived), tuple(_effective(written_before, written_after)), unmanaged)


def _derived(changes: list[Change], before: Written, after: Written) -> list[Change]:
    said = set(changes)
    return [
        change
        for entity in dict.fromkeys((*after, *before))
        for old, new in ((before.get(entity, {}), after.get(entity, {})),)
        for key in sorted({*old, *new})
        if old.get(key) != new.get(key)
        for change in (Change(entity, enforced(key), old.get(key), new.get(key)),)
        if change not in said
    ]


def _effective(before: Written, after: Written) -> list[EffectiveChange]:
    old, new = EffectiveQuotas(before.items()), EffectiveQuotas(after.items())
    found = []
    for entity in dict.fromkeys((*after, *before)):
        keys = {*old.keys, *new.keys} if entity.ip is None else {*before.get(entity, {}), *after.get(entity, {})}
        for key in sorted(keys):
            was, will = _deciding(old, before, entity, key), _deciding(new, after, entity, key)
            if (was and was.value) != (will and will.value):
                found.append(EffectiveChange(entity, key, was, will))
    return found


def _deciding(index: EffectiveQuotas, written: Written, entity: ClientQuotaEntity, key: str) -> QuotaEntry | None:
    own = written.get(entity, {}).get(key)
    return index.deciding(entity, key) if own is None else QuotaEntry(entity, own)


def _number(value: float | None) -> str:
    return "?" if value is None else number(value)


def _change_row(change: Change) -> dict[str, Any]:
    return {
        "action": change.action,
        "entity": entity_row(change.entity),
        "quota": str(change.quota),
        "before": change.before,
        "after": change.after,
    }


def _side_row(entry: QuotaEntry | None) -> dict[str, Any] | None:
    return None if entry is None else {"value": entry.value, "entity": entity_row(entry.entity)}
