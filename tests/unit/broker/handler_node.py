"""A broker without sockets, for tests of handlers: every message goes through the codec, time is moved by hand."""

import heapq
from dataclasses import MISSING, fields
from uuid import UUID

import pytest

from kclient_quota.broker.cluster_state import BrokerInfo, ClusterState
from kclient_quota.broker.groups.group_service import GroupService
from kclient_quota.broker.handlers import REGISTRY
from kclient_quota.broker.log.partition_log import PartitionLog
from kclient_quota.broker.log.segments import SegmentPool
from kclient_quota.broker.request.context import ConnectionState, Context, Services
from kclient_quota.broker.request.promise import Drive
from kclient_quota.wire.codec import decode, encode
from kclient_quota.wire.error_codes import ErrorCode
from kclient_quota.wire.messages import JoinGroupRequest, SyncGroupRequest

GROUP = "g"
TOPIC_ID = UUID(int=7)


class ManualScheduler:
    """Time that only moves when told to."""

    def __init__(self):
        self.time_ms = 1_000
        self._calls = []
        self._count = 0

    def now_ms(self):
        return self.time_ms

    date_ms = now_ms

    def call_at(self, deadline_ms, callback):
        self._count += 1
        call = Call(callback)
        heapq.heappush(self._calls, (deadline_ms, self._count, call))
        return call

    def call_from_thread(self, callback):
        self.call_at(self.time_ms, callback)

    def pass_ms(self, duration_ms):
        end_ms = self.time_ms + duration_ms
        while self._calls and self._calls[0][0] <= end_ms:
            deadline_ms, _, call = heapq.heappop(self._calls)
            self.time_ms = max(self.time_ms, deadline_ms)
            if not call.cancelled:
                call.callback()
        self.time_ms = end_ms


class Call:
    """What `call_at` returns."""

    def __init__(self, callback):
        self.callback = callback
        self.cancelled = False

    def cancel(self):
        self.cancelled = True


class Node:
    """One broker of a cluster with a topic `t` of two partitions; every message goes through the codec."""

    def __init__(self, brokers=1):
        pool = SegmentPool(1 << 16)
        infos = [BrokerInfo(i, "127.0.0.1", {"PLAINTEXT": 9000 + i}) for i in range(1, brokers + 1)]
        self.cluster = ClusterState(
            cluster_id="c", brokers=infos, new_topic_id=lambda: TOPIC_ID, new_log=lambda _: PartitionLog(pool)
        )
        self.cluster.create_topic("t", 2)
        self.scheduler = ManualScheduler()
        self.services = Services(self.cluster, self.scheduler)
        self.connection = ConnectionState("PLAINTEXT", "127.0.0.1")
        self.broker = infos[0]

    @property
    def service(self):
        return self.services.get(GroupService)

    def start(self, request, version, *, client_id="c"):
        """Send it; the list gets the response, or the exception, once there is one."""
        schema = request.__schema__
        registration = REGISTRY[schema.api_key]
        known = {
            "broker": self.broker,
            "cluster": self.cluster,
            "connection": self.connection,
            "services": self.services,
            "scheduler": self.scheduler,
            "api_key": schema.api_key,
            "api_version": version,
            "client_id": client_id,
            "registry": REGISTRY,
            "now_ms": self.scheduler.now_ms(),
        }
        given = {field.name: known.get(field.name) for field in fields(Context) if field.default is MISSING}
        context = self.context = Context(**given)
        read = decode(type(request), version, encode(request, version))
        answers = []
        Drive(registration.call(context, read), answers.append, answers.append)
        return answers

    def ask(self, request, version, **changes):
        answers = self.start(request, version, **changes)
        return self.through_codec(answers[0], version)

    @staticmethod
    def through_codec(response, version):
        if isinstance(response, Exception):
            raise response
        return decode(type(response), version, encode(response, version))

    def join(self, version, member_id=""):
        request = JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=10_000,
            member_id=member_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"m")],
        )
        return self.ask(request, version)

    def joined(self, version=9):
        first = self.join(version)
        if first.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            return self.join(version, first.member_id)
        return first

    def stable(self):
        joined = self.joined()
        request = SyncGroupRequest(
            group_id=GROUP,
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            assignments=[SyncGroupRequest.SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"mine")],
        )
        assert self.ask(request, 5).assignment == b"mine"
        return joined


def versions(request):
    """Every version of the API that is advertised."""
    registration = REGISTRY[request.__schema__.api_key]
    return pytest.mark.parametrize("version", range(registration.min_version, registration.max_version + 1))
