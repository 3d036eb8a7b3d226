"""What is asked of the brokers before records are read: topics, their offsets and sizes, what this client may fetch."""

import logging
import re
from collections.abc import Iterable, Mapping
from contextlib import closing
from typing import Any, Final

from kclient_quota.clients import KafkaError, KafkaException, TopicPartition
from kclient_quota.clients.consumer import Consumer
from kclient_quota.clock import SYSTEM_CLOCK
from kclient_quota.cluster.brokers import topic_ids
from kclient_quota.cluster.client import ClusterClient
from kclient_quota.cluster.limits import discover_limit
from kclient_quota.config import client_id_of, user_of
from kclient_quota.errors import ClusterError, ConfigError
from kclient_quota.spark.kafka.offsets import Offsets
from kclient_quota.spark.kafka.reading import failed

logger = logging.getLogger("kclient_quota")

_ASKING: Final = {"quota.backoff": "off", "enable.metrics.push": False}
_REFUSALS: Final = (KafkaError._AUTHENTICATION, KafkaError._SSL, KafkaError._RESOLVE)  # noqa: SLF001 - public names
_UNANSWERED: Final = (KafkaError._TRANSPORT, KafkaError._TIMED_OUT)  # noqa: SLF001 - public names
_FIRST_SLICE_S: Final = 1.0
"""How long an answer is waited for before it is asked whether the login was refused; each time twice as long, so that a
cluster whose listing takes long is heard out."""
_LISTEN: Final = 10
_LISTEN_S: Final = 0.01
_SAMPLE_BYTES: Final = 65_536
_TIMEOUT_S: Final = 30.0
_LATEST, _EARLIEST = -1, -2
"""What Kafka takes for times of a log's two ends."""


class Brokers:
    """Asks for offsets; its consumer reads nothing but samples.

    Args:
        conf: of `client_conf`.
        topics: names, or a pattern that matches names as a whole.
    """

    def __init__(self, conf: Mapping[str, Any], topics: list[str] | re.Pattern[str]) -> None:
        self._conf = dict(conf)
        self._timeout_s = min(_TIMEOUT_S, int(conf.get("socket.timeout.ms", _TIMEOUT_S * 1000)) / 1000)
        self._topics = topics
        self._consumer: Consumer | None = None
        self._cluster: ClusterClient | None = None
        self._refused = ""

    def offsets(self) -> tuple[Offsets, Offsets]:
        """Where every partition's log begins and ends (at its last stable offset, unless uncommitted is to be read).

        Raises:
            ClusterError: the brokers do not answer, or not this client, or there is no such topic.
        """
        first: Offsets = {}
        last: Offsets = {}
        try:
            there = self._partitions()
            for found, at in ((first, _EARLIEST), (last, _LATEST)):
                asked = [TopicPartition(topic, number, at) for topic, numbers in there.items() for number in numbers]
                for part in self._asking().offsets_for_times(asked, timeout=self._timeout_s):
                    if part.error is not None:
                        raise KafkaException(part.error)  # noqa: TRY301 - one message for all of them
                    found.setdefault(part.topic, {})[str(part.partition)] = part.offset
        except KafkaException as error:
            what = f"the offsets of {self._named()} at {self._conf['bootstrap.servers']}{self._refusal()}"
            raise failed(what, error) from error
        return first, last

    def topic_ids(self, topics: Iterable[str]) -> dict[str, str]:
        """Ids of topics, which a topic of the same name that was made anew does not have; empty where nobody tells."""
        try:
            if self._cluster is None:
                self._cluster = ClusterClient(self._conf, SYSTEM_CLOCK)
            found = topic_ids(self._cluster, topics, timeout_ms=round(self._timeout_s * 1000))
        except (ClusterError, ConfigError) as error:  # such as Kerberos, which only librdkafka speaks
            logger.debug("ids of topics are not known: %s", error)
            return {}
        return {topic: str(each) for topic, each in found.items() if each.int}

    def at_timestamps(self, wanted: Offsets, last: Offsets) -> Offsets:
        """The first offset of every partition that is not older than its `wanted` ms; its end where there is none."""
        asked = [TopicPartition(t, int(p), at_ms) for t, of in wanted.items() for p, at_ms in of.items()]
        try:
            found = self._asking().offsets_for_times(asked, timeout=self._timeout_s)
        except KafkaException as error:
            raise failed(f"the offsets of {self._named()} by time", error) from error
        result: Offsets = {}
        for part in found:
            end = last[part.topic][str(part.partition)]
            result.setdefault(part.topic, {})[str(part.partition)] = end if part.offset < 0 else part.offset
        return result

    def bytes_per_offset(self, topic: str, partition: str, offset: int) -> float | None:
        """About how large records are from there on; None when none could be read.

        Raises:
            ClusterError: they cannot be read.
        """
        sizes = {"fetch.message.max.bytes": _SAMPLE_BYTES, "queued.max.messages.kbytes": _SAMPLE_BYTES // 1024}
        conf = {**self._conf, **_ASKING, **sizes, "auto.offset.reset": "earliest"}
        with closing(Consumer(conf)) as consumer:
            consumer.assign([TopicPartition(topic, int(partition), offset)])
            found = [each for each in consumer.consume(100, 2.0) if each.error() is None]
        if not found:
            return None
        return sum(len(each.value() or b"") + len(each.key() or b"") for each in found) / len(found)

    def quota(self) -> float | None:
        """Bytes per second and broker that this client may fetch; None without a limit, or when nobody tells."""
        by_hand = self._conf.get("consumer_byte_rate")
        if by_hand:
            return float(by_hand)
        conf = {key: value for key, value in self._conf.items() if not key.startswith("quota.")}
        return discover_limit(conf, user_of(conf), client_id_of(conf), 5_000).consumer_byte_rate

    def leaders(self) -> int:
        """How many brokers lead partitions of these topics."""
        topics = self._listed()
        names = self._matching(list(topics))
        return len({part.leader for name in names for part in topics[name].partitions.values()}) or 1

    def close(self) -> None:
        """Let go of the connections."""
        if self._cluster is not None:
            self._cluster.close()
            self._cluster = None
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None

    def _asking(self) -> Consumer:
        if self._consumer is None:
            # What librdkafka would log, again and again, comes as one error of the question.
            self._consumer = Consumer({"log_level": 0, **self._conf, **_ASKING, "error_cb": self._on_error})
        return self._consumer

    def _on_error(self, error: KafkaError) -> None:
        if error.code() in _REFUSALS:
            self._refused = f" ({error.str()})"

    def _refusal(self) -> str:
        """What a request that runs into its timeout does not say; empty when the brokers have refused nothing."""
        for _ in range(_LISTEN):
            if self._consumer is None or self._refused:
                break
            self._consumer.poll(_LISTEN_S)
        return self._refused

    def _partitions(self) -> dict[str, list[int]]:
        topics = self._listed()
        found = {}
        for name in self._matching(list(topics)):
            if name not in topics:  # asked for by name, brokers tell what is not there from what is not permitted
                topics = {**topics, **self._listed(name)}
            error = topics[name].error
            if error is not None:
                raise KafkaException(error)
            found[name] = sorted(topics[name].partitions)
        return found

    def _listed(self, name: str | None = None) -> dict[str, Any]:
        """Topics, all or one; a login that is refused is told of at once, while librdkafka would go on trying."""
        left_s, slice_s = self._timeout_s, _FIRST_SLICE_S
        while True:
            at_once_s = min(left_s, slice_s)
            try:
                asked = self._asking()
                found = asked.list_topics(name, timeout=at_once_s) if name else asked.list_topics(timeout=at_once_s)
                return dict(found.topics)
            except KafkaException as error:
                left_s -= at_once_s
                if error.args[0].code() not in _UNANSWERED or left_s <= 0 or self._refusal():
                    raise
                slice_s *= 2

    def _matching(self, names: list[str]) -> list[str]:
        if isinstance(self._topics, re.Pattern):
            return sorted(name for name in names if self._topics.fullmatch(name))
        return self._topics

    def _named(self) -> str:
        return self._topics.pattern if isinstance(self._topics, re.Pattern) else ", ".join(self._topics)
