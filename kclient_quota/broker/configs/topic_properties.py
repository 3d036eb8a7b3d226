"""Kafka's topic configuration: keys, types, defaults (Kafka 4.3's `LogConfig`) and a broker's keys for the same."""

from collections.abc import Mapping

from kclient_quota.broker.configs.property import BOOLEAN, DOUBLE, INT, LIST, LONG, STRING, Property
from kclient_quota.broker.log.log_config import LOG_KEYS, OTHER_LOG_KEYS

COMPRESSIONS = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
"""Of a topic."""

TOPIC_PROPERTIES: Mapping[str, Property] = {
    "cleanup.policy": Property("delete", LIST, words=("compact", "delete")),
    "compression.gzip.level": Property("-1", INT, 1, most=9, besides=-1),
    "compression.lz4.level": Property("9", INT, 1, most=17),
    "compression.type": Property("producer", STRING, words=COMPRESSIONS),
    "compression.zstd.level": Property("3", INT, -131_072, most=22),
    "delete.retention.ms": Property("86400000", LONG),
    "file.delete.delay.ms": Property("60000", LONG),
    "flush.messages": Property("9223372036854775807", LONG, 1),
    "flush.ms": Property("9223372036854775807", LONG),
    "follower.replication.throttled.replicas": Property("", LIST),
    "index.interval.bytes": Property("4096", INT),
    "leader.replication.throttled.replicas": Property("", LIST),
    "local.retention.bytes": Property("-2", LONG, -2),
    "local.retention.ms": Property("-2", LONG, -2),
    "max.compaction.lag.ms": Property("9223372036854775807", LONG, 1),
    "max.message.bytes": Property("1048588", INT),
    "message.timestamp.after.max.ms": Property("3600000", LONG),
    "message.timestamp.before.max.ms": Property("9223372036854775807", LONG),
    "message.timestamp.type": Property("CreateTime", STRING, words=("CreateTime", "LogAppendTime")),
    "min.cleanable.dirty.ratio": Property("0.5", DOUBLE, most=1),
    "min.compaction.lag.ms": Property("0", LONG),
    "min.insync.replicas": Property("1", INT, 1),
    "preallocate": Property("false", BOOLEAN),
    "remote.log.copy.disable": Property("false", BOOLEAN),
    "remote.log.delete.on.disable": Property("false", BOOLEAN),
    "remote.storage.enable": Property("false", BOOLEAN),
    "retention.bytes": Property("-1", LONG, -(2**63)),
    "retention.ms": Property("604800000", LONG, -1),
    "segment.bytes": Property("1073741824", INT, 1024 * 1024),
    "segment.index.bytes": Property("10485760", INT, 4),
    "segment.jitter.ms": Property("0", LONG),
    "segment.ms": Property("604800000", LONG, 1),
    "unclean.leader.election.enable": Property("false", BOOLEAN),
}

BROKER_KEY_OF = {
    **LOG_KEYS,
    "file.delete.delay.ms": "log.segment.delete.delay.ms",
    "flush.messages": "log.flush.interval.messages",
    "flush.ms": "log.flush.interval.ms",
    "index.interval.bytes": "log.index.interval.bytes",
    "local.retention.bytes": "log.local.retention.bytes",
    "local.retention.ms": "log.local.retention.ms",
    "min.insync.replicas": "min.insync.replicas",
    "preallocate": "log.preallocate",
    "segment.index.bytes": "log.index.size.max.bytes",
    "segment.jitter.ms": "log.roll.jitter.ms",
    "segment.ms": OTHER_LOG_KEYS["segment.ms"],
}
"""Topic keys whose default a broker's own configuration gives."""
