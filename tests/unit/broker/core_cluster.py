"""A cluster without time or sockets, spoken to through the codec."""

from collections import deque
from uuid import UUID

import pytest

from kclient_quota.broker.cluster_state import BrokerInfo, ClusterState
from kclient_quota.broker.handlers import REGISTRY
from kclient_quota.broker.log.partition_log import PartitionLog
from kclient_quota.broker.log.segments import SegmentPool
from kclient_quota.broker.request.context import ConnectionState, Services
from kclient_quota.broker.request.controls import Controls
from kclient_quota.broker.request.dispatch import dispatch
from kclient_quota.broker.request.enforcement import Enforcement, QuotaSettings
from kclient_quota.broker.request.node import Node
from kclient_quota.wire.codec import decode
from kclient_quota.wire.frame import RequestHeader, decode_response_header, encode_request, response_header_version
from kclient_quota.wire.messages import (
    API,
)
from kclient_quota.wire.records import Record, build_batch


class StandingTime:
    def now_ms(self):
        return 1_700_000_000_000

    date_ms = now_ms

    def call_at(self, deadline_ms, callback):
        raise AssertionError("nothing here waits")


class Cluster:
    """Two brokers and a topic `t` of two partitions; every message goes through the codec."""

    def __init__(self):
        pool, time = SegmentPool(1 << 16), StandingTime()
        self.made = 0
        infos = [BrokerInfo(i, "127.0.0.1", {"PLAINTEXT": 9090 + i}) for i in (1, 2)]
        self.state = ClusterState(
            cluster_id="c",
            brokers=infos,
            new_topic_id=self._topic_id,
            new_log=lambda config: PartitionLog(pool, config),
        )
        self.topic = self.state.create_topic("t", 2)
        services = Services(self.state, time)
        self.node = Node(
            infos[0], self.state, services, time, Enforcement(QuotaSettings(), lambda: 0), Controls(), REGISTRY, deque()
        )
        self.connection = ConnectionState("PLAINTEXT", "127.0.0.1")

    def _topic_id(self):
        self.made += 1
        return UUID(int=self.made)

    def send(self, request, version=None):
        schema = request.__schema__
        version = REGISTRY[schema.api_key].max_version if version is None else version
        frame = b"".join(encode_request(request, RequestHeader(schema.api_key, version, 7, "c")))[4:]
        outcomes = []
        dispatch(self.node, self.connection, memoryview(frame), len(frame), outcomes.append)
        (outcome,) = outcomes
        assert not outcome.must_close
        answer = b"".join(outcome.parts)
        _, position = decode_response_header(answer, response_header_version(schema.api_key, version), 4)
        return decode(API[schema.api_key].response, version, answer, position)


def versions(request_class):
    entry = REGISTRY[request_class.__schema__.api_key]
    return [pytest.param(v, id=f"v{v}") for v in range(entry.min_version, entry.max_version + 1)]


def write(cluster, count=3, index=0):
    batch = build_batch([Record(b"x", timestamp_ms=100 + i) for i in range(count)])
    return cluster.topic.partitions[index].log.append(batch, leader_epoch=0, now_ms=0)
