"""What a quota administrator says: filters and alterations, by KIP-546's names."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

from kclient_quota.errors import ConfigError
from kclient_quota.quota.entity import DEFAULT, ClientQuotaEntity, Name, name_problem


class ClientQuotaMatchType(Enum):
    """How a filter component matches the name of its entity type.

    EXACT, DEFAULT and ANY are the protocol's 0, 1 and 2. PREFIX is KIP-546's draft, never shipped: the broker is asked
    for ANY and the names are matched here.
    """

    EXACT = 0
    DEFAULT = 1
    ANY = 2
    PREFIX = 3


@dataclass(frozen=True, slots=True)
class ClientQuotaFilterComponent:
    """One condition on an entity.

    Attributes:
        entity_type: "user", "client-id", "ip", or a type of a broker's own callback.
        match_type: how its name is matched.
        match: the name (EXACT) or its beginning (PREFIX); None otherwise.
    """

    entity_type: str
    match_type: ClientQuotaMatchType
    match: str | None = None

    def __post_init__(self) -> None:
        named = self.match_type in {ClientQuotaMatchType.EXACT, ClientQuotaMatchType.PREFIX}
        if named != (self.match is not None):
            wanted = "needs a match" if named else "takes no match"
            raise ConfigError(f"filter on {self.entity_type}: {self.match_type.name} {wanted}")
        is_sent = self.match_type is ClientQuotaMatchType.EXACT
        if is_sent and (problem := name_problem(self.entity_type, self.match)):
            raise ConfigError(f"filter on {problem}")

    @classmethod
    def of_entity(cls, entity_type: str, name: Name | None) -> "ClientQuotaFilterComponent":
        """The entity of this name; the default entity for `DEFAULT` or None."""
        if name is None or name is DEFAULT:
            return cls.of_default_entity(entity_type)
        return cls(entity_type, ClientQuotaMatchType.EXACT, name)

    @classmethod
    def of_default_entity(cls, entity_type: str) -> "ClientQuotaFilterComponent":
        """The default entity of this type."""
        return cls(entity_type, ClientQuotaMatchType.DEFAULT)

    @classmethod
    def of_entity_type(cls, entity_type: str) -> "ClientQuotaFilterComponent":
        """Every entity that has this type, the default one included."""
        return cls(entity_type, ClientQuotaMatchType.ANY)

    @classmethod
    def of_prefix(cls, entity_type: str, prefix: str) -> "ClientQuotaFilterComponent":
        """Every entity of this type whose name begins so; never the default one."""
        return cls(entity_type, ClientQuotaMatchType.PREFIX, prefix)

    def matches(self, entity: ClientQuotaEntity) -> bool:
        """Whether `entity` meets this condition."""
        if self.entity_type not in entity.entries:
            return False
        name = entity.entries[self.entity_type]
        if self.match_type is ClientQuotaMatchType.ANY:
            return True
        if name is DEFAULT or self.match_type is ClientQuotaMatchType.DEFAULT:
            return name is DEFAULT and self.match_type is ClientQuotaMatchType.DEFAULT
        if self.match_type is ClientQuotaMatchType.PREFIX:
            return name.startswith(self.match or "")
        return name == self.match


@dataclass(frozen=True, slots=True)
class ClientQuotaFilter:
    """Conditions of which all must hold.

    Attributes:
        components: at most one per entity type.
        strict: whether entities with further types are left out.
    """

    components: tuple[ClientQuotaFilterComponent, ...] = ()
    strict: bool = False

    def __post_init__(self) -> None:
        types = [component.entity_type for component in self.components]
        for entity_type in types:
            if types.count(entity_type) > 1:
                raise ConfigError(f"filter: {entity_type} stands in it twice; a filter has one condition per type")

    @classmethod
    def contains(cls, components: Iterable[ClientQuotaFilterComponent]) -> "ClientQuotaFilter":
        """Entities that meet these conditions, whatever other types they have."""
        return cls(tuple(components))

    @classmethod
    def contains_only(cls, components: Iterable[ClientQuotaFilterComponent]) -> "ClientQuotaFilter":
        """Entities that meet these conditions and have no other types."""
        return cls(tuple(components), strict=True)

    @classmethod
    def all(cls) -> "ClientQuotaFilter":
        """Every entity."""
        return cls()

    def matches(self, entity: ClientQuotaEntity) -> bool:
        """Whether `entity` passes (ClientQuotasImage.describe)."""
        if self.strict and (not self.components or len(entity.entries) != len(self.components)):
            return False
        return all(component.matches(entity) for component in self.components)


@dataclass(frozen=True, slots=True)
class ClientQuotaAlterationOp:
    """Set one quota, or with None remove it.

    Attributes:
        key: such as "producer_byte_rate".
        value: in the key's unit, or None.
    """

    key: str
    value: float | None


@dataclass(frozen=True, slots=True)
class ClientQuotaAlteration:
    """What shall change for one entity.

    Attributes:
        entity: whose quotas.
        ops: one per key; kept as a tuple.
    """

    entity: ClientQuotaEntity
    ops: Sequence[ClientQuotaAlterationOp]

    def __post_init__(self) -> None:
        object.__setattr__(self, "ops", tuple(self.ops))
        if not self.ops:
            raise ConfigError(f"alteration of {self.entity}: it has no operation")
        for kind, name in self.entity.entries.items():
            if problem := name_problem(kind, name):
                raise ConfigError(f"alteration of {problem}")
