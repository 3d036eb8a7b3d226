"""The quotas in force beside usage: which limit applies to a client, and which of the eight levels decided."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812 # what every Spark program calls it

from kclient_quota.admin.quota_file import parse_quota_file
from kclient_quota.errors import ConfigError
from kclient_quota.quota.entity import ClientQuotaEntity
from kclient_quota.quota.resolution import Level, levels

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ROLE_KEYS: Final = {"producer": "producer_byte_rate", "consumer": "consumer_byte_rate"}
"""Role of a client -> the quota of its bytes."""

Limits = Mapping[str, Mapping[Level, float]]
"""Quota -> level -> bytes per second."""

_COLUMNS: Final = "quota_key string, quota double, quota_level string, quota_user string, quota_client_id string"


def read_limits(path: Path | str) -> Limits:
    """The limits of a file that `kafka-quotas export` wrote.

    Raises:
        ConfigError: there is no such file, or it is none of quotas; says what is wrong in which line.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"quota file {path}: {error.strerror}; write one with: kafka-quotas export") from error
    found: dict[str, dict[Level, float]] = {}
    for entry in parse_quota_file(text, str(path)).entries:
        if entry.entity.ip is not None:
            continue
        for quota, value in entry.wanted.items():
            if quota.is_enforced:
                found.setdefault(quota.key, {})[entry.entity.user, entry.entity.client_id] = value
    return found


def with_quotas(usage: "DataFrame", limits: Limits) -> "DataFrame":
    """`usage` with the quota of each row and whose it is.

    Args:
        usage: has user, client_id and role.
        limits: see `read_limits`.

    Returns:
        `usage` with `quota_key`; `quota` (bytes per second and broker) and `quota_level` (the entry that decided), null
        where nothing limits a client; `quota_user` and `quota_client_id`, the sharers of `sharer_of`.
    """
    if not limits:
        keys = F.create_map(*(F.lit(text) for pair in ROLE_KEYS.items() for text in pair))
        nothing = {"quota": F.lit(None).cast("double"), "quota_level": F.lit(None).cast("string")}
        own = {"quota_user": F.col("user"), "quota_client_id": F.col("client_id")}
        return usage.withColumns({"quota_key": keys[F.col("role")], **nothing, **own})
    found = F.udf(lambda user, client, role: _of(limits, user, client, role), _COLUMNS)
    return usage.withColumn("_quota", found("user", "client_id", "role")).select("*", "_quota.*").drop("_quota")


def limit_of(limits: Limits, user: str | None, client: str | None, role: str) -> tuple[str, float | None, str | None]:
    """The quota's key, its value and the entity that decided; the latter two None where nothing limits a client."""
    return _of(limits, user, client, role)[:3]


def sharer_of(level: Level, user: str | None, client: str | None) -> tuple[str | None, str | None]:
    """Whose a quota is that was set at a level: (user, client-id); None: of whichever.

    A broker counts what all do together who have the same: a quota of a user is shared by its client-ids, also when it
    comes from the default of users.
    """
    return (None if level[0] is None else user), (None if level[1] is None else client)


_Told = tuple[str, float | None, str | None, str | None, str | None]


def _of(limits: Limits, user: str | None, client: str | None, role: str) -> _Told:
    key = ROLE_KEYS[role]
    of = limits.get(key, {})
    for level in levels(user or "", client or ""):
        value = of.get(level)
        if value is not None:
            entity = str(ClientQuotaEntity.of(user=level[0], client_id=level[1]))
            return key, value, entity, *sharer_of(level, user, client)
    return key, None, None, user, client
