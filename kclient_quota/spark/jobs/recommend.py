"""Quotas out of usage: a default that serves most, overrides only for those whom it would limit.

A client's demand in a window is its byte rate on its busiest broker, and where it was throttled the part it could not
send as well: rate / (1 - part of the time throttled). Its wanted quota is a quantile of that over all windows, with
headroom. The default is a quantile of what all entities want; who wants more than the default gets an override.

| column | unit | meaning |
| --- | --- | --- |
| user, client_id | | the entity; both null: the default of the entity type |
| quota_key | | producer_byte_rate or consumer_byte_rate |
| value | bytes/s | the quota, per broker |
| demand | bytes/s | the quantile of demand behind it; of the default, null |
| windows | | that were looked at |
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812 # what every Spark program calls it

from kclient_quota.admin.quota_file import format_quota_file
from kclient_quota.admin.units import QuotaUnit, enforced
from kclient_quota.errors import ConfigError
from kclient_quota.quota.entity import DEFAULT, ClientQuotaEntity, Name
from kclient_quota.spark.quota_table import ROLE_KEYS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import DataFrame, Row

ENTITIES: Final = {"user": ("user",), "client-id": ("client_id",), "user,client-id": ("user", "client_id")}
_MOST_THROTTLED: Final = 0.75
_WHOLE: Final = 1024


@dataclass(frozen=True, slots=True)
class Policy:
    """How quotas are chosen.

    Attributes:
        entity: key of `ENTITIES`: who gets quotas.
        quantile: of a client's demand over time.
        headroom: by how much the quota is above that.
        default_quantile: the part of the entities that the default serves.
        accuracy: of the quantiles: 1/accuracy is the largest error in rank; exact for fewer rows than this.
    """

    entity: str = "client-id"
    quantile: float = 0.95
    headroom: float = 1.25
    default_quantile: float = 0.9
    accuracy: int = 10_000

    def __post_init__(self) -> None:
        if self.entity not in ENTITIES:
            raise ConfigError(f"entity {self.entity}: write one of {'; '.join(ENTITIES)}")
        for name in ("quantile", "default_quantile"):
            if not 0 < getattr(self, name) <= 1:
                raise ConfigError(f"{name} {getattr(self, name)}: write a number above 0, up to 1")
        if self.headroom < 1:
            raise ConfigError(f"headroom {self.headroom}: write 1 or more")


def recommend(usage: "DataFrame", policy: Policy) -> "DataFrame":
    """Default quotas and overrides; nothing for those whose clients do not tell their bytes.

    Args:
        usage: rows of the job `usage`; per broker where there are such, else of the client as a whole.
        policy: how to choose.
    """
    wanted = wanted_quotas(usage, policy)
    defaults = wanted.groupBy("quota_key").agg(
        F.percentile_approx("value", policy.default_quantile, policy.accuracy).alias("default")
    )
    overrides = (
        wanted.join(F.broadcast(defaults), "quota_key")
        .where(F.col("value") > F.col("default"))
        .select("user", "client_id", "quota_key", "value", "demand", "windows")
    )
    nobody = F.lit(None).cast("string")
    return defaults.select(
        nobody.alias("user"),
        nobody.alias("client_id"),
        "quota_key",
        F.col("default").alias("value"),
        F.lit(None).cast("double").alias("demand"),
        F.lit(None).cast("bigint").alias("windows"),
    ).unionByName(overrides)


def wanted_quotas(usage: "DataFrame", policy: Policy) -> "DataFrame":
    """What every entity would need: the columns of `recommend`, user and client_id null where they play no part."""
    who = ENTITIES[policy.entity]
    keys = F.create_map(*(F.lit(text) for pair in ROLE_KEYS.items() for text in pair))
    for name in who:
        usage = usage.where(F.col(name).isNotNull())
    length = (F.unix_millis("window_end") - F.unix_millis("window_start")) * F.col("clients")
    waited = F.col("throttle_avg_ms") * F.col("request_rate") / F.col("clients") / 1000
    rows = usage.withColumn("part", F.coalesce(F.col("throttle_total_ms") / length, waited))
    per_broker = rows.groupBy("window_start", "cluster_id", "role", "broker", *who).agg(
        F.sum("byte_rate").alias("rate"), F.max("part").alias("part")
    )
    # Rows of the client as a whole sum up its brokers: their rate counts only where there is no row of a broker.
    of_broker = F.max(F.when(F.col("broker").isNotNull(), F.col("rate")))
    part = F.least(F.coalesce(F.max("part"), F.lit(0.0)), F.lit(_MOST_THROTTLED))
    busiest = (
        per_broker.groupBy("window_start", "cluster_id", "role", *who)
        .agg((F.coalesce(of_broker, F.max("rate")) / (1 - part)).alias("demand"))
        .where(F.col("demand").isNotNull())
    )
    wanted = busiest.groupBy("role", *who).agg(
        F.percentile_approx("demand", policy.quantile, policy.accuracy).alias("demand"),
        F.count_distinct("window_start").alias("windows"),
    )
    value = F.greatest(F.ceil(F.col("demand") * policy.headroom / _WHOLE), F.lit(1)) * _WHOLE
    names = [F.col(name) if name in who else F.lit(None).cast("string").alias(name) for name in ("user", "client_id")]
    return wanted.select(
        *names, keys[F.col("role")].alias("quota_key"), value.cast("double").alias("value"), "demand", "windows"
    )


def quota_file(rows: "Iterable[Row]", policy: Policy) -> str:
    """Recommendations as the file that `kafka-quotas plan|apply` takes.

    Args:
        rows: of `recommend`.
        policy: the same.
    """
    asked: dict[ClientQuotaEntity, dict[QuotaUnit, float]] = {}
    for row in rows:
        is_default = row["user"] is None and row["client_id"] is None
        names: dict[str, Name] = {
            column: DEFAULT if is_default else str(row[column]) for column in ENTITIES[policy.entity]
        }
        entity = ClientQuotaEntity.of(user=names.get("user"), client_id=names.get("client_id"))
        asked.setdefault(entity, {})[enforced(row["quota_key"])] = float(row["value"])
    return format_quota_file(asked, {}, _defaults_first)


def _defaults_first(entity: ClientQuotaEntity) -> tuple[bool, str]:
    return DEFAULT not in entity.entries.values(), str(entity)
