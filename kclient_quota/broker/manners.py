"""How brokers throttle that speak Kafka's protocol and are not Apache Kafka, as modes of the embedded broker.

| manner       | quota APIs        | a response over the quota                       | at most | fetches over it     |
| ------------ | ----------------- | ----------------------------------------------- | ------- | ------------------- |
| `kafka`      | yes               | goes out, then the connection is muted          | -       | answered empty      |
| `redpanda`   | of client-ids     | goes out; the next of its kind is late by that  | 30 s    | answered with data  |
| `event-hubs` | none              | is late, and says by how much                   | 20 s    | answered with data  |
| `managed`    | refused (31)      | goes out, then the connection is muted          | -       | answered empty      |
| `kafka-with-data` | yes          | goes out, then the connection is muted          | -       | answered with data  |
| `released`   | yes               | goes out, then the connection is muted          | -       | answered empty, (1) |

(1) What a share fetch has acquired is given back when its answer is sent empty. Under `kafka` it stays acquired.

Sources:

* `kafka`: KIP-219; Kafka's `ClientQuotaManager`, `ThrottledChannel`, `KafkaApis`.
* `redpanda`: docs.redpanda.com, "Manage Throughput" (24.2 and later: limits per broker, throttle time told first and
  enforced at the connection's next read, `max_kafka_throttle_delay_ms` 30,000); redpanda#18218. Before 26.1 Kafka's API
  has quotas of client-ids only, and a question that names users is answered UNSUPPORTED_VERSION. No quota window is
  described: a token bucket holds one second's worth, for which a window of 2 x 1 s stands in.
* `event-hubs`: learn.microsoft.com, "Apache Kafka troubleshooting guide for Event Hubs" (requests are delayed before
  they are acknowledged, the delay is told as `throttle_time_ms`; a produce request that would be delayed past its
  timeout is refused with POLICY_VIOLATION, such a fetch is answered empty) and "Apache Kafka configurations" (timeouts
  below 20 s do not count); azure-event-hubs-for-kafka#209 lists its APIs, which are without quotas and alterations. How
  long it measures is not published but called short: 2 x 1 s here. A namespace's throughput units are a quota of the
  default user here.
* `managed`: Kafka itself, whose provider sets quotas by means of its own and keeps them and the brokers' configuration
  from clients, as Confluent Cloud's client quotas (docs.confluent.io/cloud, "Client Quotas") and Amazon MSK Serverless.

* `released`: what Kafka should do for share groups: `SharePartition.releaseAcquiredRecords` where
  `KafkaApis.processShareFetchResponse` empties the answer; a proposal of ours, no broker does so.
* `kafka-with-data`: what KAFKA-21397 proposes: a fetch over the quota is answered with its data and its throttle time.

`request_percentage`, `controller_mutation_rate` and metrics stay Kafka's in every manner.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import Final

from kclient_quota.errors import ConfigError

_DELETE_RECORDS, _ALTER_CONFIGS, _INCREMENTAL_ALTER_CONFIGS = 21, 33, 44
_DESCRIBE_CLIENT_QUOTAS, _ALTER_CLIENT_QUOTAS = 48, 49
_CONSUMER_GROUP_HEARTBEAT, _CONSUMER_GROUP_DESCRIBE = 68, 69
_GET_TELEMETRY_SUBSCRIPTIONS, _PUSH_TELEMETRY, _LIST_CONFIG_RESOURCES = 71, 72, 74
_SHARE_GROUPS: Final = frozenset({76, 77, 78, 79, 90, 91, 92})
_SHORT_WINDOW: Final = MappingProxyType({"quota.window.num": "2", "quota.window.size.seconds": "1"})


class Delay(Enum):
    """What makes a client slower that has gone over its quota."""

    MUTE = "mute"
    """The response goes out, then nothing is read from the connection (KIP-219)."""
    NEXT = "next"
    """The response goes out; the next request of the same API on the connection is answered no earlier."""
    LATE = "late"
    """The response itself is late."""


@dataclass(frozen=True, slots=True)
class ThrottleManner:
    """How brokers throttle and what they tell of it.

    Attributes:
        name: as the command line takes it.
        delay: what makes the client slower.
        tells: whether responses carry `throttle_time_ms`.
        most_ms: the longest throttle; None for any length.
        empties_fetches: whether a fetch over the quota is answered empty and not counted, and no fetch may take more
            than a whole window allows; otherwise it is answered with its data.
        refuses_at_most: whether what would have to wait longer than `most_ms` is refused: produce requests with
            POLICY_VIOLATION, nothing stored, fetches with no records.
        releases_emptied: whether what a share fetch has acquired is given back when its answer is sent empty.
        denies_quotas: whether questions about quotas and brokers' configurations are answered
            CLUSTER_AUTHORIZATION_FAILED.
        has_user_quotas: whether quotas of users may be asked for.
        tells_window: whether brokers describe `quota.window.*`.
        absent: keys of APIs that it does not have.
        properties: broker properties that are different from Kafka's defaults.
    """

    name: str
    delay: Delay = Delay.MUTE
    tells: bool = True
    most_ms: int | None = None
    empties_fetches: bool = True
    refuses_at_most: bool = False
    releases_emptied: bool = False
    denies_quotas: bool = False
    has_user_quotas: bool = True
    tells_window: bool = True
    absent: frozenset[int] = frozenset()
    properties: Mapping[str, str] = field(default_factory=dict)


KAFKA: Final = ThrottleManner("kafka")
REDPANDA: Final = ThrottleManner(
    "redpanda",
    delay=Delay.NEXT,
    most_ms=30_000,
    empties_fetches=False,
    has_user_quotas=False,
    tells_window=False,
    absent=frozenset(
        {_CONSUMER_GROUP_HEARTBEAT, _CONSUMER_GROUP_DESCRIBE, _GET_TELEMETRY_SUBSCRIPTIONS, _PUSH_TELEMETRY}
    )
    | _SHARE_GROUPS,
    properties=_SHORT_WINDOW,
)
EVENT_HUBS: Final = ThrottleManner(
    "event-hubs",
    delay=Delay.LATE,
    most_ms=20_000,
    empties_fetches=False,
    refuses_at_most=True,
    tells_window=False,
    absent=frozenset(
        {
            _DELETE_RECORDS,
            _ALTER_CONFIGS,
            _INCREMENTAL_ALTER_CONFIGS,
            _DESCRIBE_CLIENT_QUOTAS,
            _ALTER_CLIENT_QUOTAS,
            _CONSUMER_GROUP_HEARTBEAT,
            _CONSUMER_GROUP_DESCRIBE,
            _GET_TELEMETRY_SUBSCRIPTIONS,
            _PUSH_TELEMETRY,
            _LIST_CONFIG_RESOURCES,
        }
    )
    | _SHARE_GROUPS,
    properties=_SHORT_WINDOW,
)
MANAGED: Final = ThrottleManner("managed", denies_quotas=True)
WITH_DATA: Final = ThrottleManner("kafka-with-data", empties_fetches=False)
RELEASED: Final = ThrottleManner("released", releases_emptied=True)
MANNERS: Final = MappingProxyType(
    {manner.name: manner for manner in (KAFKA, REDPANDA, EVENT_HUBS, MANAGED, WITH_DATA, RELEASED)}
)


def manner_of(given: str | ThrottleManner) -> ThrottleManner:
    """A manner by its name, or as it is.

    Raises:
        ConfigError: there is no manner of that name.
    """
    if isinstance(given, ThrottleManner):
        return given
    found = MANNERS.get(given)
    if found is None:
        raise ConfigError(f"manner={given!r} is not known; use one of {', '.join(MANNERS)}, or a ThrottleManner")
    return found
