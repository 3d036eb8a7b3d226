"""Quotas out of usage: a default that serves most, overrides only for those whom it would limit.

An entity's demand in a window is that of its clients on its busiest broker, the part that its quota did not let through
included (see `demand`). Its wanted quota is a quantile of that over all windows, with headroom, and no more than the
policy's most. Pushes do not always tell in which window their bytes came: so it is the quantile of demand and its
error, the most that it is likely to have been. The default is a quantile of what all entities want; who wants more than
the default gets an override.
With a broker capacity, the limits of those who use a broker, default or override, do not add up to more than that:
small ones stay, all others on that broker are cut to the same level (see `rationing`).

| column | unit | meaning |
| --- | --- | --- |
| user, client_id | | the entity; both null: the default of the entity type |
| quota_key | | producer_byte_rate or consumer_byte_rate |
| value | bytes/s | the quota, per broker |
| demand, demand_highest | bytes/s | the quantile of demand behind it, and of the most that it may have been; of \
the default, null |
| windows | | that were looked at |
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812 # what every Spark program calls it

from kclient_quota.admin.quota_file import format_quota_file
from kclient_quota.admin.units import QuotaUnit, enforced
from kclient_quota.errors import ConfigError
from kclient_quota.quota.entity import DEFAULT, ClientQuotaEntity, Name
from kclient_quota.spark.jobs.demand import MOST_GROWTH, with_demand
from kclient_quota.spark.jobs.rationing import with_levels
from kclient_quota.spark.quota_table import ROLE_KEYS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import DataFrame, Row

ENTITIES: Final = {"user": ("user",), "client-id": ("client_id",), "user,client-id": ("user", "client_id")}
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
        most_growth: demand counts for at most so many times what was sent.
        most_bytes_per_second: of one quota; None: whatever is wanted.
        broker_capacity: bytes per second that the quotas of those who use one broker may add up to; None: no matter.
    """

    entity: str = "client-id"
    quantile: float = 0.95
    headroom: float = 1.25
    default_quantile: float = 0.9
    accuracy: int = 10_000
    most_growth: float = MOST_GROWTH
    most_bytes_per_second: float | None = None
    broker_capacity: float | None = None

    def __post_init__(self) -> None:
        if self.entity not in ENTITIES:
            raise ConfigError(f"entity {self.entity}: write one of {'; '.join(ENTITIES)}")
        for name in ("quantile", "default_quantile"):
            if not 0 < getattr(self, name) <= 1:
                raise ConfigError(f"{name} {getattr(self, name)}: write a number above 0, up to 1")
        if self.headroom < 1:
            raise ConfigError(f"headroom {self.headroom}: write 1 or more")
        if self.most_growth < 1:
            raise ConfigError(f"most_growth {self.most_growth}: write 1 or more")
        for name in ("most_bytes_per_second", "broker_capacity"):
            value = getattr(self, name)
            if value is not None and not value >= 1:
                raise ConfigError(f"{name} {value}: write 1 or more")


def recommend(usage: "DataFrame", policy: Policy) -> "DataFrame":
    """Default quotas and overrides; nothing for those whose clients do not tell their bytes.

    Args:
        usage: rows of the job `usage`; per broker where there are such, else of the client as a whole.
        policy: how to choose.
    """
    who = ENTITIES[policy.entity]
    wanted = _wanted(_demands(usage, policy), policy)
    of_most = F.percentile_approx("value", policy.default_quantile, policy.accuracy)
    # A window, not an aggregate that is joined: Spark would plan all that comes before it once more for each use.
    wanted = wanted.withColumn("default", of_most.over(Window.partitionBy("role")))
    if policy.broker_capacity is not None:
        wanted = _rationed(wanted, usage, policy.broker_capacity, who)
    defaults = wanted.groupBy("role").agg(F.first("default").alias("default"))
    overrides = wanted.where(F.col("value") > F.col("default"))
    nobody = {name: F.lit(None).cast("string") for name in ("user", "client_id")}
    kinds = {"demand": "double", "demand_highest": "double", "windows": "bigint"}
    rest = {name: F.lit(None).cast(kind) for name, kind in kinds.items()}
    whole = defaults.withColumnRenamed("default", "value").withColumns({**nobody, **rest})
    return _told(whole).unionByName(_told(_with_unused(overrides, who)))


def wanted_quotas(usage: "DataFrame", policy: Policy) -> "DataFrame":
    """What every entity would need: the columns of `recommend`, user and client_id null where they play no part."""
    wanted = _wanted(_demands(usage, policy), policy)
    return _told(_with_unused(wanted, ENTITIES[policy.entity]))


def _told(rows: "DataFrame") -> "DataFrame":
    keys = F.create_map(*(F.lit(text) for pair in ROLE_KEYS.items() for text in pair))
    key = keys[F.col("role")].alias("quota_key")
    return rows.select("user", "client_id", key, "value", "demand", "demand_highest", "windows")


def _with_unused(rows: "DataFrame", who: tuple[str, ...]) -> "DataFrame":
    for name in ("user", "client_id"):
        rows = rows if name in who else rows.withColumn(name, F.lit(None).cast("string"))
    return rows


def _demands(usage: "DataFrame", policy: Policy) -> "DataFrame":
    """What every entity would have sent: a row a window, role and broker."""
    who = ENTITIES[policy.entity]
    for name in who:
        usage = usage.where(F.col(name).isNotNull())
    rows = with_demand(usage, policy.most_growth)
    return rows.groupBy("window_start", "cluster_id", "role", "broker", *who).agg(
        F.sum("demand").alias("demand"), F.sum(F.col("demand") + F.col("error")).alias("highest")
    )


def _wanted(demands: "DataFrame", policy: Policy) -> "DataFrame":
    """What every entity needs: role, the entity, value, demand, demand_highest, windows."""
    who = ENTITIES[policy.entity]
    # Rows of the client as a whole sum up its brokers: they count only where there is no row of a broker.
    is_of_broker = F.col("broker").isNotNull()
    of_busiest = (
        F.coalesce(F.max(F.when(is_of_broker, F.col(name))), F.max(name)).alias(name) for name in ("demand", "highest")
    )
    busiest = (
        demands.groupBy("window_start", "cluster_id", "role", *who).agg(*of_busiest).where(F.col("demand").isNotNull())
    )
    wanted = busiest.groupBy("role", *who).agg(
        F.percentile_approx("demand", policy.quantile, policy.accuracy).alias("demand"),
        F.percentile_approx("highest", policy.quantile, policy.accuracy).alias("demand_highest"),
        F.count_distinct("window_start").alias("windows"),
    )
    value = F.greatest(F.ceil(F.col("demand_highest") * policy.headroom / _WHOLE), F.lit(1)) * _WHOLE
    most = F.lit(policy.most_bytes_per_second).cast("double")  # null is passed over by `least`
    return wanted.withColumn("value", F.least(value.cast("double"), most))


def _rationed(wanted: "DataFrame", usage: "DataFrame", capacity: float, who: tuple[str, ...]) -> "DataFrame":
    """`wanted`, value and default lowered so far that what applies to those who use a broker fits into it."""
    at = usage.where(F.col("byte_rate").isNotNull()).select("cluster_id", "broker", "role", *who).distinct()
    has_brokers = F.max("broker").over(Window.partitionBy("role", *who)).isNotNull()
    # Where a client tells of its brokers, what it tells of all of them together takes no seat.
    seats = at.withColumn("_sits", F.col("broker").isNotNull() | ~has_brokers).where("_sits").drop("_sits")
    limits = wanted.withColumn("limit", F.greatest("value", "default"))
    seated = with_levels(seats.join(limits, ["role", *who]), capacity)
    same = (F.first(name).alias(name) for name in wanted.columns if name not in {"role", *who})
    found = seated.groupBy("role", *who).agg(*same, F.min("level").alias("_bound"))
    lowest = F.least("default", F.min("_bound").over(Window.partitionBy("role")))
    cut = F.least(F.greatest("value", "default"), "_bound")
    return found.withColumn("default", lowest).withColumn("value", cut).drop("_bound")


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
