"""Who may do what: Kafka's access control lists and the rules of its `StandardAuthorizer` (KIP-11, KIP-290, KIP-801).

A super user may do everything. Of the lists that match a resource (its name, `*`, or a prefix of its name) one that
denies wins over any that allow; where lists match the resource and none of them speaks of the asker, he may not; where
there is none at all, `allow.everyone.if.no.acl.found` decides. Who may read, write, delete or alter may also describe.
"""

from collections.abc import Iterable, Iterator
from enum import IntEnum
from typing import Final, NamedTuple

WILDCARD: Final = "*"
CLUSTER_NAME: Final = "kafka-cluster"
_MOST_REMEMBERED = 10_000


class ResourceType(IntEnum):
    """Kafka's `org.apache.kafka.common.resource.ResourceType`."""

    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    """Kafka's `org.apache.kafka.common.resource.PatternType`."""

    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class AclOperation(IntEnum):
    """Kafka's `org.apache.kafka.common.acl.AclOperation`."""

    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class AclPermission(IntEnum):
    """Kafka's `org.apache.kafka.common.acl.AclPermissionType`."""

    ANY = 1
    DENY = 2
    ALLOW = 3


_Op = AclOperation
_IMPLYING: Final = {
    _Op.DESCRIBE: frozenset({_Op.DESCRIBE, _Op.READ, _Op.WRITE, _Op.DELETE, _Op.ALTER, _Op.ALL}),
    _Op.DESCRIBE_CONFIGS: frozenset({_Op.DESCRIBE_CONFIGS, _Op.ALTER_CONFIGS, _Op.ALL}),
}
SUPPORTED: Final = {
    ResourceType.TOPIC: (
        *(_Op.READ, _Op.WRITE, _Op.CREATE, _Op.DESCRIBE, _Op.DELETE, _Op.ALTER),
        *(_Op.DESCRIBE_CONFIGS, _Op.ALTER_CONFIGS),
    ),
    ResourceType.GROUP: (_Op.READ, _Op.DESCRIBE, _Op.DELETE, _Op.DESCRIBE_CONFIGS, _Op.ALTER_CONFIGS),
    ResourceType.CLUSTER: (
        *(_Op.CREATE, _Op.CLUSTER_ACTION, _Op.DESCRIBE_CONFIGS, _Op.ALTER_CONFIGS, _Op.IDEMPOTENT_WRITE),
        *(_Op.ALTER, _Op.DESCRIBE),
    ),
}
"""Operations that a resource of a type knows (Kafka's `AclEntry.supportedOperations`)."""


class Acl(NamedTuple):
    """One entry: `principal` (`User:alice`, `User:*`) from `host` (an address, `*`) and what it may or may not do."""

    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission: int


class AclFilter(NamedTuple):
    """Which entries are meant; None and `ANY` mean all."""

    resource_type: int
    resource_name: str | None
    pattern_type: int
    principal: str | None
    host: str | None
    operation: int
    permission: int

    def matches(self, acl: Acl) -> bool:
        """Whether an entry is meant."""
        return (
            self.resource_type in {ResourceType.ANY, acl.resource_type}
            and self._is_pattern(acl)
            and self.principal in {None, acl.principal}
            and self.host in {None, acl.host}
            and self.operation in {AclOperation.ANY, acl.operation}
            and self.permission in {AclPermission.ANY, acl.permission}
        )

    def _is_pattern(self, acl: Acl) -> bool:
        if self.pattern_type not in {PatternType.ANY, PatternType.MATCH, acl.pattern_type}:
            return False
        name = self.resource_name
        if name is None or name == acl.resource_name:
            return True
        if self.pattern_type != PatternType.MATCH:
            return False
        if acl.pattern_type == PatternType.PREFIXED:
            return name.startswith(acl.resource_name)
        return acl.resource_name == WILDCARD


class Authorizer:
    """A cluster's access control lists.

    Attributes:
        is_enabled: whether they are obeyed (`authorizer.class.name`); otherwise everybody may do everything.
        super_users: principals who may do everything (`super.users`).
        allows_unlisted: `allow.everyone.if.no.acl.found`.
    """

    def __init__(self) -> None:
        self.is_enabled = False
        self.super_users: frozenset[str] = frozenset()
        self.allows_unlisted = False
        self._acls: dict[Acl, None] = {}
        self._by_pattern: dict[tuple[int, int, str], dict[Acl, None]] = {}
        self._known: dict[tuple[str, str, int, int, str], bool] = {}

    def configure(self, *, is_enabled: bool, super_users: Iterable[str], allows_unlisted: bool) -> None:
        """Obey the broker's configuration."""
        self.is_enabled = is_enabled
        self.super_users = frozenset(super_users)
        self.allows_unlisted = allows_unlisted
        self._known.clear()

    # -- entries

    def __contains__(self, acl: Acl) -> bool:
        return acl in self._acls

    def add(self, acl: Acl) -> None:
        """Add an entry; nothing if it is there."""
        if acl not in self._acls:
            self._acls[acl] = None
            self._by_pattern.setdefault(_pattern(acl), {})[acl] = None
            self._known.clear()

    def remove(self, acl: Acl) -> None:
        """Take an entry away; nothing if it is not there."""
        if acl in self._acls:
            del self._acls[acl]
            left = self._by_pattern[_pattern(acl)]
            del left[acl]
            if not left:
                del self._by_pattern[_pattern(acl)]
            self._known.clear()

    def candidates(self, wanted: AclFilter) -> list[Acl]:
        """The entries that may be meant: those of one resource where that is named, else all."""
        names_one = wanted.pattern_type in {PatternType.LITERAL, PatternType.PREFIXED}
        if names_one and wanted.resource_name is not None and wanted.resource_type != ResourceType.ANY:
            return list(self._by_pattern.get((wanted.resource_type, wanted.pattern_type, wanted.resource_name), ()))
        return list(self._acls)

    # -- answers

    def may(self, principal: str, host: str, operation: int, resource_type: int, name: str) -> bool:
        """Whether `principal` (`User:alice`) may do `operation` from `host` to a resource."""
        if not self.is_enabled or principal in self.super_users:
            return True
        asked = (principal, host, operation, resource_type, name)
        found = self._known.get(asked)
        if found is None:
            if len(self._known) >= _MOST_REMEMBERED:
                self._known.clear()
            found = self._known[asked] = self._judge(*asked)
        return found

    def may_somewhere(self, principal: str, host: str, operation: int, resource_type: int) -> bool:
        """Whether there is any resource of a type for which it may (Kafka's `authorizeByResourceType`)."""
        if not self.is_enabled or principal in self.super_users:
            return True
        mine = [
            acl
            for acl in self._acls
            if acl.resource_type == resource_type
            and _is_about(acl, principal, host)
            and acl.operation in {operation, AclOperation.ALL}
        ]
        denied = [acl for acl in mine if acl.permission == AclPermission.DENY]
        return any(
            acl.permission == AclPermission.ALLOW and not any(_covers(deny, acl) for deny in denied) for acl in mine
        )

    def _judge(self, principal: str, host: str, operation: int, resource_type: int, name: str) -> bool:
        implying = _IMPLYING.get(_Op(operation), frozenset({operation, AclOperation.ALL}))
        has_any = may = False
        for acl in self._about(resource_type, name):
            has_any = True
            if not _is_about(acl, principal, host):
                continue
            if acl.permission == AclPermission.DENY:
                if acl.operation in {operation, AclOperation.ALL}:
                    return False
            elif acl.operation in implying:
                may = True
        return may if has_any else self.allows_unlisted

    def _about(self, resource_type: int, name: str) -> Iterator[Acl]:
        """Entries of every pattern that a name matches."""
        for literal in {name, WILDCARD}:
            yield from self._by_pattern.get((resource_type, PatternType.LITERAL, literal), ())
        for end in range(len(name) + 1):
            yield from self._by_pattern.get((resource_type, PatternType.PREFIXED, name[:end]), ())


def _pattern(acl: Acl) -> tuple[int, int, str]:
    return acl.resource_type, acl.pattern_type, acl.resource_name


def _is_about(acl: Acl, principal: str, host: str) -> bool:
    kind, _, _ = principal.partition(":")
    return acl.principal in {principal, f"{kind}:{WILDCARD}"} and acl.host in {host, WILDCARD}


def _covers(deny: Acl, allow: Acl) -> bool:
    """Whether what is denied leaves nothing of what is allowed."""
    if deny.pattern_type == PatternType.PREFIXED:
        return allow.resource_name != WILDCARD and allow.resource_name.startswith(deny.resource_name)
    if deny.resource_name == WILDCARD:
        return True
    return allow.pattern_type == PatternType.LITERAL and allow.resource_name == deny.resource_name
