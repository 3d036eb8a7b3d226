"""The eight levels at which a client quota may be set, resolved as Kafka's `DefaultQuotaCallback` does.

Every lookup is a handful of dictionary look-ups, however many quotas are set.
"""

from collections.abc import Iterator
from enum import IntFlag
from typing import Final, TypeAlias

from kclient_quota.quota.entity import DEFAULT, Name

Level: TypeAlias = tuple[Name | None, Name | None]
"""User and client-id; None when this part is not asked for."""
Tags: TypeAlias = tuple[str, str]
"""Values of the metric tags `user` (sanitized) and `client-id`; whoever shares them is measured together."""


class QuotaTypesEnabled(IntFlag):
    """Which kinds of levels have an entry; Kafka's `QuotaTypes`."""

    NO_QUOTAS = 0
    CLIENT_ID = 1
    USER = 2
    USER_CLIENT_ID = 4
    CUSTOM = 8


def _kind(level: Level) -> QuotaTypesEnabled:
    user, client_id = level
    if user is None:
        return QuotaTypesEnabled.CLIENT_ID
    return QuotaTypesEnabled.USER if client_id is None else QuotaTypesEnabled.USER_CLIENT_ID


def levels(user: str, client_id: str) -> tuple[Level, ...]:
    """The eight levels that may apply to a client, in order of precedence."""
    return (
        (user, client_id),
        (user, DEFAULT),
        (user, None),
        (DEFAULT, client_id),
        (DEFAULT, DEFAULT),
        (DEFAULT, None),
        (None, client_id),
        (None, DEFAULT),
    )


_USER_PART: Final = (True, True, True, True, True, True, False, False)
_CLIENT_PART: Final = (True, True, False, True, True, False, True, True)


class QuotaLevels:
    """The limits of one kind of quota by level, and who is measured together under them.

    Args:
        sticky_types: what Kafka up to 4.1 did: once a kind of level has been touched, if only by a removal, it counts
            as enabled until restart.
        share_empty_client_id: as KIP-13 has it: clients without a client-id share the default client-id's quota.
            Kafka's own code leaves them without one.
    """

    __slots__ = ("_active", "_limits", "_share_empty", "_sticky_types", "types_enabled")

    def __init__(self, *, sticky_types: bool = False, share_empty_client_id: bool = True) -> None:
        self._limits: dict[Level, float] = {}
        self._active = dict.fromkeys(QuotaTypesEnabled, 0)
        self._sticky_types = sticky_types
        self._share_empty = share_empty_client_id
        self.types_enabled = QuotaTypesEnabled.NO_QUOTAS

    def __len__(self) -> int:
        return len(self._limits)

    def set(self, level: Level, limit: float) -> None:
        """Set the limit of one level; names of users are sanitized."""
        kind = _kind(level)
        if level not in self._limits:
            self._active[kind] += 1
        self._limits[level] = limit
        self.types_enabled |= kind

    def remove(self, level: Level) -> None:
        """Take the limit of one level away; nothing happens when there is none."""
        kind = _kind(level)
        if self._limits.pop(level, None) is not None:
            self._active[kind] -= 1
        if self._sticky_types:
            self.types_enabled |= kind
        elif not self._active[kind]:
            self.types_enabled &= ~kind

    def tags(self, user: str, client_id: str) -> Tags:
        """Whom a client is measured with.

        Args:
            user: its sanitized principal.
            client_id: as sent; empty when it sent none.
        """
        enabled = self.types_enabled
        if enabled <= QuotaTypesEnabled.CLIENT_ID:
            return "", client_id
        if enabled == QuotaTypesEnabled.USER:
            return user, ""
        if enabled == QuotaTypesEnabled.USER_CLIENT_ID:
            return user, client_id
        limits = self._limits
        for level, by_user, by_client in zip(levels(user, client_id), _USER_PART, _CLIENT_PART, strict=True):
            if level in limits:
                return user if by_user else "", client_id if by_client else ""
        return "", client_id

    def limit(self, tags: Tags) -> float | None:
        """The limit of those who are measured together under `tags`; None when there is none."""
        for level in self._levels_of(tags):
            limit = self._limits.get(level)
            if limit is not None:
                return limit
        return None

    def _levels_of(self, tags: Tags) -> tuple[Level, ...]:
        user, client_id = tags
        if user and client_id:
            return (user, client_id), (user, DEFAULT), (DEFAULT, client_id), (DEFAULT, DEFAULT)
        if user:
            shared: tuple[Level, ...] = ((user, DEFAULT), (DEFAULT, DEFAULT)) if self._share_empty else ()
            return (user, None), (DEFAULT, None), *shared
        if client_id:
            return (None, client_id), (None, DEFAULT)
        return ((None, DEFAULT),) if self._share_empty else ()

    def matches(self, user: str, client_id: str) -> Iterator[tuple[Level, float]]:
        """Every level that has a limit for this client, the one that counts first, those it overrides after it."""
        for level, by_client in zip(levels(user, client_id), _CLIENT_PART, strict=True):
            limit = self._limits.get(level)
            if limit is not None and (client_id or self._share_empty or not by_client):
                yield level, limit
