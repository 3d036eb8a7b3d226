"""Quota units of KIP-546's draft: what one broker enforces, what the whole cluster gives, shares of a stated capacity.

Apache Kafka enforces one number per broker. Every `name:unit` is resolved by itself through the eight levels, each is
turned into what it means on one broker, and the lowest is what has to be written.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from kclient_quota.admin.effective import EffectiveQuotas
from kclient_quota.config import quantity
from kclient_quota.errors import ConfigError
from kclient_quota.quota.entity import (
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    REQUEST_RATE,
    ClientQuotaEntity,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

BROKER_BPS: Final = "broker_bps"
BPS: Final = "bps"
SHARES: Final = "shares"

UNITS: Final = MappingProxyType(
    {
        PRODUCER_BYTE_RATE: (BROKER_BPS, BPS, SHARES),
        CONSUMER_BYTE_RATE: (BROKER_BPS, BPS, SHARES),
        REQUEST_PERCENTAGE: ("percent", SHARES),
        CONTROLLER_MUTATION_RATE: ("mutations",),
        CONNECTION_CREATION_RATE: ("connections",),
        REQUEST_RATE: ("requests",),
    }
)
"""By quota its units; the first is what a broker enforces, and what is meant when none is named."""


class QuotaUnit(NamedTuple):
    """A quota in a unit, written `name:unit`."""

    key: str
    unit: str

    def __str__(self) -> str:
        return f"{self.key}:{self.unit}" if self.unit else self.key

    @property
    def is_enforced(self) -> bool:
        """Whether brokers enforce this very number."""
        return self == enforced(self.key)


Configured = dict[ClientQuotaEntity, dict[QuotaUnit, float]]
"""What somebody asked for, by entity."""
Written = dict[ClientQuotaEntity, dict[str, float]]
"""What brokers have, by entity and Kafka's key."""


@dataclass(slots=True)
class Sources:
    """What cannot be read off the brokers.

    Attributes:
        values: the quotas that are set in another unit than the one brokers enforce, and whatever else is set for the
            same entity and name.
        capacity: by quota, what one broker has to share out.
    """

    values: Configured = field(default_factory=dict)
    capacity: dict[str, float] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.values or self.capacity)

    def owns(self, entity: ClientQuotaEntity, key: str) -> bool:
        """Whether the brokers' number of this quota is worked out here."""
        return any(quota.key == key for quota in self.values.get(entity, ()))


def enforced(key: str) -> QuotaUnit:
    """The quota in the unit that brokers enforce."""
    return QuotaUnit(key, UNITS.get(key, ("",))[0])


def parse_quota(text: str) -> QuotaUnit:
    """What `name` or `name:unit` says.

    Raises:
        ConfigError: the name is empty, or the unit is unknown; the message lists the known ones.
    """
    key, colon, unit = text.strip().partition(":")
    if not key or (colon and not unit):
        raise ConfigError(f"{text!r} is no quota; write name or name:unit, such as {PRODUCER_BYTE_RATE}:{BROKER_BPS}")
    known = UNITS.get(key, ("",))
    if not colon:
        return QuotaUnit(key, known[0])
    if unit not in known:
        names = ", ".join(known) if known != ("",) else "none; leave the unit out"
        raise ConfigError(f"{key} has no unit {unit!r}; its units are {names}")
    return QuotaUnit(key, unit)


def parse_value(quota: QuotaUnit, text: str) -> float:
    """A quota's value.

    Raises:
        ConfigError: it is no number, or cannot be one of this unit.
    """
    try:
        value = quantity(text) if BPS in UNITS.get(quota.key, ()) and text[:1].isdigit() else float(_bare(quota, text))
    except (ValueError, OverflowError, ConfigError):
        value = math.nan
    if not math.isfinite(value):
        units = "; write it as 1048576, 10MB or 1MiB/s" if BPS in UNITS.get(quota.key, ()) else ""
        raise ConfigError(f"{quota}={text}: that is no number{units}")
    if not quota.is_enforced and value <= 0:
        raise ConfigError(f"{quota}={text}: it must be greater than 0")
    return value


def _bare(quota: QuotaUnit, text: str) -> str:
    return text.strip().removesuffix("%") if quota.unit == "percent" else text


def configured(sources: Sources, written: Written) -> Configured:
    """Everything that was asked for: the sources, and what is simply set on the brokers."""
    everything: Configured = {entity: dict(values) for entity, values in sources.values.items()}
    for entity, values in written.items():
        for key, value in values.items():
            if not sources.owns(entity, key):
                everything.setdefault(entity, {})[enforced(key)] = value
    return everything


def to_write(asked: Configured, capacity: Mapping[str, float], brokers: int) -> Written:
    """What brokers shall have for all that was asked for.

    Args:
        asked: of everybody, since shares are shares of a sum and less specific entries count as well.
        capacity: by quota, what one broker has to share out.
        brokers: how many brokers lead partitions.

    Raises:
        ConfigError: there are shares of a quota without a capacity.
    """
    if all(quota.is_enforced for values in asked.values() for quota in values):
        return {entity: {quota.key: value for quota, value in values.items()} for entity, values in asked.items()}
    shares = _sums_of_shares(asked)
    missing = sorted(set(shares) - set(capacity))
    if missing:
        raise ConfigError(f"{missing[0]}:{SHARES} needs a capacity: give --capacity {missing[0]}=NUMBER (per broker)")
    index = EffectiveQuotas(
        (entity, {str(quota): value for quota, value in values.items()}) for entity, values in asked.items()
    )

    def per_broker(quota: QuotaUnit, value: float) -> float:
        if quota.unit == BPS:
            return _whole(quota.key, value / max(1, brokers))
        if quota.unit == SHARES:
            return _whole(quota.key, capacity[quota.key] * value / shares[quota.key])
        return value

    result: Written = {}
    for entity, values in asked.items():
        for key in {quota.key for quota in values}:
            result.setdefault(entity, {})[key] = min(
                per_broker(quota, value)
                for unit in UNITS.get(key, ("",))
                for quota in (QuotaUnit(key, unit),)
                if (value := values[quota] if quota in values else index.inherited(entity, str(quota))) is not None
            )
    return result


def _sums_of_shares(asked: Configured) -> dict[str, float]:
    sums: dict[str, float] = {}
    for values in asked.values():
        for quota, value in values.items():
            if quota.unit == SHARES:
                sums[quota.key] = sums.get(quota.key, 0.0) + value
    return sums


def _whole(key: str, value: float) -> float:
    """Byte rates are whole numbers, and a quota of 0 is none that Kafka takes."""
    return float(max(1, math.floor(value))) if BPS in UNITS[key] else value


def altered(
    asked: Configured,
    entity: ClientQuotaEntity,
    add: Mapping[QuotaUnit, float],
    delete: tuple[QuotaUnit, ...] | frozenset[QuotaUnit] = (),
) -> Configured:
    """What is asked for after an alteration of one entity."""
    values = {quota: value for quota, value in asked.get(entity, {}).items() if quota not in delete}
    values.update(add)
    after = {**asked, entity: values}
    if not values:
        del after[entity]
    return after


def sources_of(asked: Configured, written: Written, capacity: Mapping[str, float]) -> Sources:
    """What has to be kept beside the brokers: whatever cannot be read off what is written there."""
    kept: Configured = {}
    for entity, values in asked.items():
        numbers = written.get(entity, {})
        derived = {
            quota.key for quota, value in values.items() if not quota.is_enforced or numbers.get(quota.key) != value
        }
        found = {quota: value for quota, value in values.items() if quota.key in derived}
        if found:
            kept[entity] = found
    shared = {quota.key for values in kept.values() for quota in values if quota.unit == SHARES}
    return Sources(kept, {key: value for key, value in capacity.items() if key in shared})


def changes(before: Written, after: Written) -> dict[ClientQuotaEntity, dict[str, float | None]]:
    """What to alter on the brokers: new values, and None for what goes."""
    result: dict[ClientQuotaEntity, dict[str, float | None]] = {}
    for entity in dict.fromkeys((*before, *after)):
        old, new = before.get(entity, {}), after.get(entity, {})
        ops: dict[str, float | None] = {key: value for key, value in new.items() if old.get(key) != value}
        ops.update({key: None for key in old if key not in new})
        if ops:
            result[entity] = ops
    return result
