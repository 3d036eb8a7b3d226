"""Whom a quota is for, as plain values: what is changed is noted, and kept, under these."""

from kclient_quota.quota.entity import ClientQuotaEntity

Change = tuple[str | int | None, ...]


def quota_key(entity: ClientQuotaEntity) -> Change:
    """Kind, name, kind, name."""
    return tuple(part for pair in sorted(entity.wire_entries()) for part in pair)


def quota_entity(key: Change) -> ClientQuotaEntity:
    """The entity of a `quota_key`."""
    names = [None if name is None else str(name) for name in key[1::2]]
    return ClientQuotaEntity(dict(zip(map(str, key[::2]), names, strict=True)))
