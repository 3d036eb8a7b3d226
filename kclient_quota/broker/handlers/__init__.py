"""One file per API family; every file below here is imported, by a statement that what freezes programs reads too."""

from kclient_quota.broker.handlers.administration import acls, cluster, configs, quotas, topics, users
from kclient_quota.broker.handlers.connecting import api_versions, metadata, sasl, telemetry
from kclient_quota.broker.handlers.groups import classic_groups, consumer_groups, group_offsets, share_groups
from kclient_quota.broker.handlers.records import (
    fetch,
    offsets_in_log,
    produce,
    share_acknowledge,
    share_fetch,
    transaction_views,
    transactions,
)
from kclient_quota.broker.request.registry import REGISTRY, Registration, handler

__all__ = [
    "REGISTRY",
    "Registration",
    "acls",
    "api_versions",
    "classic_groups",
    "cluster",
    "configs",
    "consumer_groups",
    "fetch",
    "group_offsets",
    "handler",
    "metadata",
    "offsets_in_log",
    "produce",
    "quotas",
    "sasl",
    "share_acknowledge",
    "share_fetch",
    "share_groups",
    "telemetry",
    "topics",
    "transaction_views",
    "transactions",
    "users",
]
