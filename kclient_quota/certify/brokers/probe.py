"""What a row asks a broker with: quotas of its own, topics of its own, connections that hide nothing."""

import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from threading import Lock
from typing import Any, NamedTuple, Self

from kclient_telemetry import logger_of

from kclient_quota.admin import client_metrics
from kclient_quota.admin.output import entity_text
from kclient_quota.certify.brokers.talker import Talker, Topic
from kclient_quota.certify.verdict import Verdict, failed, passed
from kclient_quota.clock import SYSTEM_CLOCK
from kclient_quota.cluster.client import ClusterClient
from kclient_quota.cluster.configs import ResourceType, describe_configs, window_of
from kclient_quota.cluster.quotas import alter_client_quotas, describe_request, read_description
from kclient_quota.cluster.security import parse_security
from kclient_quota.config import user_of
from kclient_quota.errors import ClusterError, KclientQuotaError
from kclient_quota.quota.entity import IP, USER, ClientQuotaEntity, Name
from kclient_quota.quota.rate import QUOTA_SAMPLES, QUOTA_WINDOW_MS
from kclient_quota.wire.connection import Connection
from kclient_quota.wire.error_codes import RETRIABLE, ErrorCode, error_name
from kclient_quota.wire.messages import ApiVersionsRequest, CreateTopicsRequest, DeleteTopicsRequest, MetadataRequest

log = logger_of(__name__)

_FOLLOW_S = 15
_DELETE_MS = 10_000
_LOOK_S = 0.02
_SETTLE_S = 0.1
"""Brokers may tell of a quota a moment before they hold anybody to it."""
_ANONYMOUS = "ANONYMOUS"
_AGAIN_S = (1.0, 2.0, 4.0, 8.0)


class Window(NamedTuple):
    """How the broker measures.

    Attributes:
        whole_ms: what a fresh sensor's rate is divided by: all samples but the one that is being filled.
        sample_ms: one sample; the longest throttle for request time.
    """

    whole_ms: int
    sample_ms: int


class Probe:
    """A row's hands; whatever it has set or made is gone after `close`.

    Args:
        conf: a librdkafka configuration that leads to the cluster.
        name: of the row and the run; quotas, topics and client-ids are named after it.

    Attributes:
        name: as given.
        user: whom the broker takes us for.
        client: for questions whose throttling nobody looks at.
    """

    def __init__(self, conf: Mapping[str, Any], name: str) -> None:
        self.name = name
        self.user = user_of(conf) or _ANONYMOUS
        self._conf = {**conf, "client.id": f"{name}-admin"}
        self.client = ClusterClient(self._conf, SYSTEM_CLOCK)
        self._quotas: dict[ClientQuotaEntity, set[str]] = {}
        self._topics: list[str] = []
        self._subscriptions: list[str] = []
        self._open = ExitStack()
        self._any: tuple[str, int] | None = None
        self._is_closed = False
        self._changing = Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        """Remove what was set and made, once; another thread may do so while the row is asking."""
        with self._changing:
            if self._is_closed:
                return
            self._is_closed = True
        self._open.close()
        for entity, keys in self._quotas.items():
            self._take_away(entity, dict.fromkeys(keys))
        self._await_connections()
        for subscription in self._subscriptions:
            with _telling(f"the client-metrics subscription {subscription}"):
                client_metrics.delete_subscription(self.client, subscription, timeout_ms=10_000)
        if self._topics:
            with _telling(f"the topics {', '.join(self._topics)}"):
                self._delete_topics()
        self.client.close()

    @contextmanager
    def _leaving_something(self) -> Iterator[None]:
        """Nothing is set or made any more once what was is being removed."""
        with self._changing:
            if self._is_closed:
                raise ClusterError("interrupted")
            yield

    def _take_away(self, entity: ClientQuotaEntity, nothing: Mapping[str, None]) -> None:
        """Again and again: a quota of connections may keep us from saying so at first."""
        with _telling(f"the quota of {entity_text(entity)}"):
            for wait_s in (*_AGAIN_S, None):
                try:
                    (result,) = alter_client_quotas(self.client, [(entity, nothing)])
                    if result.error_code not in RETRIABLE:  # any other says that it never was there
                        return
                    raise ClusterError(error_name(result.error_code), error_code=result.error_code)
                except KclientQuotaError:
                    if wait_s is None:
                        raise
                    time.sleep(wait_s)

    def _delete_topics(self) -> None:
        states = [DeleteTopicsRequest.DeleteTopicState(name=topic) for topic in self._topics]
        request = DeleteTopicsRequest(topics=states, topic_names=self._topics, timeout_ms=_DELETE_MS)
        for found in self.client.ask_controller(request).responses:
            if found.error_code not in {ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}:
                raise ClusterError(f"{found.name}: {error_name(found.error_code)}", error_code=found.error_code)

    def _await_connections(self) -> None:
        """The next row's connections are served: the broker has heard that a quota of connections is gone."""
        limited = {entity for entity in self._quotas if IP in entity.entries}
        until_s = time.monotonic() + _FOLLOW_S
        while limited and time.monotonic() < until_s:
            with suppress(KclientQuotaError), self._connection(f"{self.name}-admin") as connection:
                limited &= dict(read_description(connection.send(describe_request([])))).keys()
            time.sleep(_LOOK_S if limited else _SETTLE_S)

    # -- what there is

    def window(self) -> Window:
        """As the broker's configuration says, Kafka's defaults where it does not."""
        (broker, *_) = self.client.ask(MetadataRequest(topics=[])).brokers
        samples, sample_ms = QUOTA_SAMPLES, QUOTA_WINDOW_MS
        with suppress(ClusterError):
            entries = describe_configs(self.client, ResourceType.BROKER, str(broker.node_id))
            samples, sample_ms = window_of({key: entry.value for key, entry in entries.items()}) or (samples, sample_ms)
        return Window((samples - 1) * sample_ms, sample_ms)

    def address(self) -> str:
        """The address that we come from, as far as this machine knows."""
        with socket.create_connection(self._any_address(), _FOLLOW_S) as connected:
            return str(connected.getsockname()[0])

    def has_api(self, api_key: int) -> bool:
        """Whether the broker advertises an API."""
        answer = self.client.ask(ApiVersionsRequest(client_software_name="kclient-quota", client_software_version="1"))
        return any(row.api_key == api_key for row in answer.api_keys)

    # -- making and setting

    def topic(self, suffix: str = "t", partitions: int = 1) -> Topic:
        """A new topic whose leader serves it."""
        name = f"{self.name}-{suffix}"
        self._topics.append(name)
        topic = CreateTopicsRequest.CreatableTopic(
            name=name, num_partitions=partitions, replication_factor=-1, assignments=[], configs=[]
        )
        with self._leaving_something():
            (made,) = self.client.ask_controller(CreateTopicsRequest(topics=[topic])).topics
        if made.error_code:
            self._topics.remove(name)
            raise ClusterError(f"the topic {name} was not made: {made.error_message or made.error_code}")
        until_s = time.monotonic() + _FOLLOW_S
        while True:
            found = self.client.ask(MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=name)]))
            (row,) = found.topics
            leaders = [partition.leader_id for partition in row.partitions]
            address = next(((node.host, node.port) for node in found.brokers if leaders[:1] == [node.node_id]), None)
            if not row.error_code and address is not None:
                return Topic(name, row.topic_id, *address)
            if time.monotonic() > until_s:
                raise ClusterError(f"the topic {name} has no leader after {_FOLLOW_S} s")
            time.sleep(_LOOK_S)

    def forget_topic(self, name: str) -> None:
        """Delete this topic at the end as well."""
        self._topics.append(name)

    def set_quota(self, names: Mapping[str, Name], topic: Topic | None = None, **values: float | None) -> None:
        """Set quotas (None removes) and wait until the broker, a topic's leader if one is given, knows them.

        Raises:
            ClusterError: it refuses, or never learns of them.
        """
        entity = ClientQuotaEntity(names)
        self._quotas.setdefault(entity, set()).update(values)
        # connected before it is set: it may be a quota of connections
        with self._connection(f"{self.name}-admin", topic) as connection:
            with self._leaving_something():
                (result,) = alter_client_quotas(self.client, [(entity, values)])
            if result.error_code:
                raise ClusterError(f"the quota was refused: {result.error_message}", error_code=result.error_code)
            until_s = time.monotonic() + _FOLLOW_S
            while True:
                known = dict(read_description(connection.send(describe_request([])))).get(entity, {})
                if all(known.get(key) == value for key, value in values.items()):
                    break
                if time.monotonic() > until_s:
                    raise ClusterError(f"the broker does not know a quota {_FOLLOW_S} s after it was set")
                time.sleep(_LOOK_S)
        time.sleep(_SETTLE_S)

    def subscribe(self, client_id: str, interval_ms: int) -> None:
        """Ask for the metrics of one client (KIP-714)."""
        self._subscriptions.append(client_id)
        values = {"interval.ms": str(interval_ms), "metrics": "org.apache.kafka.", "match": f"client_id={client_id}"}
        with self._leaving_something():
            client_metrics.alter_subscription(self.client, client_id, values, timeout_ms=10_000)
        time.sleep(_SETTLE_S * 5)

    def talker(self, client_id: str = "", topic: Topic | None = None) -> Talker:
        """A connection as a client of its own, to a topic's leader if one is given; closed with this."""
        connection = self._open.enter_context(self._connection(client_id or self.name, topic))
        return Talker(connection, client_id or self.name)

    def _connection(self, client_id: str, topic: Topic | None = None) -> Connection:
        security = parse_security({**self._conf, "client.id": client_id})
        host, port = (topic.host, topic.port) if topic is not None else self._any_address()
        return Connection(security.settings(host, port), SYSTEM_CLOCK)

    def _any_address(self) -> tuple[str, int]:
        if self._any is None:
            (node, *_) = self.client.ask(MetadataRequest(topics=[])).brokers
            self._any = node.host, node.port
        return self._any

    def own_user(self) -> dict[str, Name]:
        """The entity that we ourselves are."""
        return {USER: self.user}


@contextmanager
def _telling(what: str) -> Iterator[None]:
    """Whatever cannot be removed is told of, and keeps nothing else from being removed."""
    try:
        yield
    except KclientQuotaError as error:
        log.warning("%s could not be removed from the cluster, look after it: %s", what, error)


def about(what: str, found_ms: float, wanted_ms: float, slack_ms: float = 120) -> Verdict:
    """Whether a throttle time is what the formula gives."""
    why = f"{what}: told {found_ms:.0f} ms, the formula gives {wanted_ms:.0f} ms"
    return passed(why) if abs(found_ms - wanted_ms) <= slack_ms else failed(why)
