"""What each key means here, in a sentence of our own: DescribeConfigs tells it to whoever asks for documentation."""

from collections.abc import Mapping
from typing import Final

from kclient_quota.broker.cluster_state import BROKER, CLIENT_METRICS, GROUP, TOPIC
from kclient_quota.broker.configs.group_properties import GROUP_BROKER_KEYS
from kclient_quota.broker.configs.topic_properties import BROKER_KEY_OF

_KEPT: Final = "Kept and described as by Apache Kafka; it changes nothing on this broker."

_TOPIC: Final[Mapping[str, str]] = {
    "cleanup.policy": "What goes when: `delete` drops whole segments, `compact` keeps the newest of each key.",
    "delete.retention.ms": "How long compaction keeps a record without a value, for readers to learn of the deletion.",
    "max.compaction.lag.ms": "A record may stay uncompacted for so long at most.",
    "max.message.bytes": "The largest batch that is taken, headers and compression included.",
    "message.timestamp.after.max.ms": "By how much a record's timestamp may be ahead of the broker's clock.",
    "message.timestamp.before.max.ms": "By how much a record's timestamp may be behind the broker's clock.",
    "message.timestamp.type": "Whose time records have: the producer's (CreateTime) or the broker's (LogAppendTime).",
    "min.cleanable.dirty.ratio": "A log is compacted once so large a part of it has been written since the last time.",
    "min.compaction.lag.ms": "A record stays as it is for so long at least.",
    "min.insync.replicas": "So many replicas must be up for a producer with acks=all to be served.",
    "retention.bytes": "A partition's oldest segments are dropped beyond this size; -1 is without limit.",
    "retention.ms": "Segments whose records are all older than this are dropped; -1 is without limit.",
    "segment.bytes": "A new segment begins when the last one would grow beyond this size.",
    "segment.ms": "A new segment begins when the first record of the last one is older than this.",
}

_GROUP: Final[Mapping[str, str]] = {
    "consumer.heartbeat.interval.ms": "How often members of a consumer group (KIP-848) are told to send a heartbeat.",
    "consumer.session.timeout.ms": "After so long without a heartbeat a group of KIP-848 gives a member up.",
    "share.auto.offset.reset": "Where a share group begins: `earliest`, `latest`, or `by_duration:` and how long ago.",
    "share.delivery.count.limit": "A record is archived when it has been delivered so often without being accepted.",
    "share.heartbeat.interval.ms": "How often members of a share group are told to send a heartbeat.",
    "share.isolation.level": "Whether a share group gets aborted records: `read_uncommitted` or `read_committed`.",
    "share.partition.max.record.locks": "So many records of a partition may be acquired at a time.",
    "share.record.lock.duration.ms": "How long a record is its reader's before others may have it.",
    "share.session.timeout.ms": "A member of a share group is given up after so long without a heartbeat.",
}

_BROKER: Final[Mapping[str, str]] = {
    "allow.everyone.if.no.acl.found": "Whether everybody may do what no access control list speaks of.",
    "authorizer.class.name": "Whose rules guard the broker: the StandardAuthorizer's; with none everybody may do all.",
    "auto.create.topics.enable": "Whether asking for the metadata of a topic that is not there makes it.",
    "connections.max.idle.ms": "A connection on which nothing happens for so long is closed; -1 is never.",
    "connections.max.reauth.ms": "After so long a client has to authenticate again (KIP-368); 0 is never.",
    "fetch.max.bytes": "The most bytes of records in one answer to a fetch.",
    "group.consumer.max.size": "So many members may be in a consumer group (KIP-848).",
    "group.consumer.migration.policy": "Which groups with members may turn from the classic to the consumer protocol "
    "and back: `disabled`, `upgrade`, `downgrade` or `bidirectional`.",
    "group.initial.rebalance.delay.ms": "How long the first member of a classic group waits for others.",
    "group.max.session.timeout.ms": "The longest session that a member of a classic group may ask for.",
    "group.max.size": "So many members may be in a classic group.",
    "group.min.session.timeout.ms": "The shortest session that a member of a classic group may ask for.",
    "group.share.max.size": "So many members may be in a share group.",
    "log.cleaner.backoff.ms": "How long the cleaner rests before it looks for logs to be compacted again.",
    "log.roll.ms": "A topic's segment.ms, where the topic has none of its own.",
    "max.connection.creation.rate": "So many connections a second are taken, the others later (KIP-612).",
    "max.connections": "So many connections are served at a time; further ones wait until one of them ends. "
    "Where it is set lower, those that were silent for the longest are closed.",
    "max.connections.per.ip": "So many connections of one address are served at a time; further ones are closed.",
    "num.partitions": "How many partitions a topic has that is made without saying it.",
    "producer.id.expiration.ms": "An idempotent producer that has not written for so long is forgotten.",
    "quota.window.num": "Over how many samples quotas are measured.",
    "quota.window.size.seconds": "How long each sample of a quota's measurement is.",
    "sasl.server.max.receive.size": "The largest request before a client has authenticated.",
    "socket.request.max.bytes": "The largest request.",
    "super.users": "Who may do everything whatever the access control lists say, separated by semicolons.",
    "transaction.max.timeout.ms": "The longest time-out of a transaction that a producer may ask for.",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "How often it is looked for transactional ids that "
    "have expired.",
    "transactional.id.expiration.ms": "A transactional id of which nothing was heard for so long, and which has no "
    "transaction under way, is forgotten.",
}

_CLIENT_METRICS: Final[Mapping[str, str]] = {
    "interval.ms": "How often clients push their metrics (KIP-714).",
    "match": "Which clients: names of attributes and regular expressions of their values, as `client_id=orders-.*`.",
    "metrics": "Which metrics: beginnings of their names, separated by commas; `*` is all.",
}

_OF_DEFAULTS: Final = {
    **{broker_key: _TOPIC[key] for key, broker_key in BROKER_KEY_OF.items() if key in _TOPIC},
    **{broker_key: _GROUP[key] for key, broker_key in GROUP_BROKER_KEYS.items() if key in _GROUP},
}
"""Broker keys that give a topic's or a group's default mean the same."""

_KNOWN: Final[Mapping[int, Mapping[str, str]]] = {
    BROKER: {**_OF_DEFAULTS, **_BROKER},
    CLIENT_METRICS: _CLIENT_METRICS,
    GROUP: _GROUP,
    TOPIC: _TOPIC,
}


def documentation(resource_type: int, key: str) -> str | None:
    """A sentence about a key; None for resources whose keys explain themselves (loggers)."""
    known = _KNOWN.get(resource_type)
    return None if known is None else known.get(key, _KEPT)
