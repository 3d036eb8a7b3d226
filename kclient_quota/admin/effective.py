"""KIP-546's resolve, which Kafka never shipped: what applies to a client, which entry decided, which it overrides."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from kclient_quota.errors import ConfigError
from kclient_quota.quota.entity import CLIENT_ID, DEFAULT, USER, ClientQuotaEntity, name_problem
from kclient_quota.quota.resolution import Level, levels


@dataclass(frozen=True, slots=True)
class QuotaEntry:
    """One configured value.

    Attributes:
        entity: whose entry it is.
        value: in the key's unit.
    """

    entity: ClientQuotaEntity
    value: float


@dataclass(frozen=True, slots=True)
class EffectiveQuota:
    """What applies of one kind of quota.

    Attributes:
        key: such as "producer_byte_rate".
        decided_by: the entry that applies.
        overrides: the less specific entries that it hides, most specific first; empty unless asked for.
    """

    key: str
    decided_by: QuotaEntry
    overrides: tuple[QuotaEntry, ...] = ()

    @property
    def value(self) -> float:
        """The value that applies."""
        return self.decided_by.value


class EffectiveQuotas:
    """Configured entries, indexed so that resolving costs eight look-ups, however many there are; keep it for many.

    Args:
        entries: entities with their values by key; types other than users and client-ids are left out.
    """

    def __init__(self, entries: Iterable[tuple[ClientQuotaEntity, Mapping[str, float]]]) -> None:
        self._by_level: dict[Level, Mapping[str, float]] = {}
        keys: set[str] = set()
        for entity, values in entries:
            user, client_id = level = entity.user, entity.client_id
            if len(entity.entries) == (user is not None) + (client_id is not None):
                self._by_level[level] = values
                keys.update(values)
        self.keys = sorted(keys)
        """The kinds of quota that somebody has, sorted."""

    def describe(self, entity: ClientQuotaEntity, *, include_overrides: bool = False) -> list[EffectiveQuota]:
        """What applies to `entity`.

        Args:
            entity: a user, a client-id or a pair of both, by name. Of an entity without a client-id only the entries
                for users are looked at, and the other way round.
            include_overrides: whether to list what is overridden, too.

        Returns:
            one entry per kind of quota that is limited, sorted by key.

        Raises:
            ConfigError: an entity that no client can have.
        """
        matches: dict[str, list[QuotaEntry]] = {}
        for level in _levels(entity):
            values = self._by_level.get(level)
            if values:
                source = _entity_of(level)
                for key, value in values.items():
                    matches.setdefault(key, []).append(QuotaEntry(source, value))
        return [
            EffectiveQuota(key, entries[0], tuple(entries[1:]) if include_overrides else ())
            for key, entries in sorted(matches.items())
        ]

    def inherited(self, entity: ClientQuotaEntity, key: str) -> float | None:
        """The value of `deciding`."""
        entry = self.deciding(entity, key)
        return None if entry is None else entry.value

    def deciding(self, entity: ClientQuotaEntity, key: str) -> QuotaEntry | None:
        """What holds for everybody whom an entry of users and client-ids covers; None without a limit."""
        if set(entity.entries) - {USER, CLIENT_ID}:
            return None
        for level in _covering(entity):
            values = self._by_level.get(level)
            if values and key in values:
                return QuotaEntry(_entity_of(level), values[key])
        return None


def _covering(entity: ClientQuotaEntity) -> Iterator[Level]:
    """The levels that hold for everybody whom an entry covers, most specific first."""
    user, client_id = entity.user, entity.client_id
    users = [None] if user is None else list(dict.fromkeys((user, DEFAULT, None)))
    clients = [None] if client_id is None else list(dict.fromkeys((client_id, DEFAULT, None)))
    yield from ((one, other) for one in users for other in clients if one is not None or other is not None)


def candidates(entity: ClientQuotaEntity) -> list[ClientQuotaEntity]:
    """The entries that can apply to a client, most specific first; none for an entity that no client can have."""
    try:
        return [_entity_of(level) for level in _levels(entity) if level[1] != ""]  # nobody can be set for ""
    except ConfigError:
        return []


def _levels(entity: ClientQuotaEntity) -> Iterator[Level]:
    user, client_id = entity.user, entity.client_id
    if set(entity.entries) - {USER, CLIENT_ID} or not entity.entries:
        raise ConfigError(f"{entity}: effective quotas are those of a user, a client-id or a pair of both")
    if user is DEFAULT or client_id is DEFAULT:
        raise ConfigError(f"{entity}: a client has a name; ask for one that has no entry to see what defaults do")
    for kind, name in entity.entries.items():
        if problem := name_problem(kind, name):
            raise ConfigError(problem)
    for level in levels(user or "", client_id or ""):
        if (level[0] is None or user is not None) and (level[1] is None or client_id is not None):
            yield level


def _entity_of(level: Level) -> ClientQuotaEntity:
    return ClientQuotaEntity.of(user=level[0], client_id=level[1])
