"""How a producer's sender finds out where messages go: it asks librdkafka, and waits for the answer."""

import logging
from collections.abc import Collection
from typing import TYPE_CHECKING, Any, Final

from kclient_quota.clients.producer.core import ProducerCore
from kclient_quota.clients.producer.routes import ROUTE_MS
from kclient_quota.clock import Clock

if TYPE_CHECKING:
    from kclient_quota.clients.producer.caller.waiting import WaitingProducer

logger = logging.getLogger("kclient_quota")

METADATA_MS: Final = 500
"""How long a near cluster's answer may take, and about how long a step may wait for all: nothing is sent meanwhile."""
MOST_METADATA_MS: Final = 2_000
"""How long an answer may take at first, and at most. Before it come those to what is under way, so it takes two ways
there and back; the first one takes three, and four more with TLS and a log-in: 400 ms away always more than 500 ms."""
NEARLY: Final = 0.9
"""Of its time, when a call ends for want of an answer: librdkafka's clock and ours need not agree."""
MOST_SINGLE: Final = 10
"""Of so many topics each is asked for by itself, which takes one way to a broker and back each; of more, all topics of
the cluster at once: ten thousand partitions take a tenth of a second."""


class RouteFinder:
    """Asks which partitions there are, and who leads them, of topics that are new or were asked for long ago.

    The core is told of the answers, under its lock.
    """

    def __init__(self, core: ProducerCore, clock: Clock, lock: Any) -> None:
        self._core = core
        self._clock = clock
        self._lock = lock
        self._list_from_ms = 0
        self._asked_ms: dict[str, int] = {}
        self._patience_ms = MOST_METADATA_MS  # librdkafka has nobody to send to before it has heard of anybody, either
        self._unanswered = 0  # in a row
        self._next_ms = 0  # nobody is asked before that

    def has(self, topic: str) -> bool:
        """Whether it is known who leads a topic."""
        return self._core.brokers.routes.get(topic) is not None

    def find(self, producer: "WaitingProducer", topics: Collection[str]) -> None:
        """Ask about those of these topics, and of those whose brokers are lost, that it is time for."""
        brokers, now_ms = self._core.brokers, self._clock.now_ms()
        if now_ms < self._next_ms:
            return
        wanted = [topic for topic in dict.fromkeys((*topics, *brokers.lost)) if brokers.wants_route(topic, now_ms)]
        if not wanted:
            return
        # Asked for all at once they are all old at once, though only some have messages just now.
        either = {*wanted, *brokers.routes.old(now_ms)}
        if len(either) > MOST_SINGLE and now_ms >= self._list_from_ms:
            if self._ask(producer, None, either):
                return
            self._list_from_ms = now_ms + ROUTE_MS  # there may be too many for one answer
        # Those asked for longest ago come first: some that are never found would take all the time, every time.
        for topic in sorted(wanted, key=lambda each: self._asked_ms.get(each, 0)):
            if self._clock.now_ms() - now_ms >= METADATA_MS:
                return  # the others when it is time for them again; meanwhile librdkafka finds a place for them
            self._asked_ms[topic] = self._clock.now_ms()
            self._ask(producer, topic, [topic])

    def _ask(self, producer: "WaitingProducer", topic: str | None, about: Collection[str]) -> bool:
        """Ask for one topic or, None, for all; whether there was an answer, of which it is learnt about some."""
        began_ms = self._clock.now_ms()
        try:
            metadata = producer.ask_librdkafka(topic, self._patience_ms / 1000)
        except KeyboardInterrupt:  # of the main thread's, where that does a sender's work
            raise
        except BaseException as error:  # noqa: BLE001 - an agent's wrapper may raise anything
            logger.debug("Who leads %s is not known: %s", topic or "any topic", error)
            self._be_patient(self._clock.now_ms() - began_ms, is_for_all=topic is None)
            return False
        took_ms = self._clock.now_ms() - began_ms
        self._unanswered, self._patience_ms = 0, min(max(METADATA_MS, 2 * took_ms), MOST_METADATA_MS)
        found = {}
        for name in about:
            known = metadata.topics.get(name)
            found[name] = {} if known is None else {number: part.leader for number, part in known.partitions.items()}
        with self._lock:
            self._core.brokers.learn_routes(found, len(metadata.brokers), self._clock.now_ms())
        return True

    def _be_patient(self, waited_ms: int, *, is_for_all: bool) -> None:
        """Give the next answer longer, where this one has not come in time, and pause the longer the more did not.

        Of all topics there may be too many for one answer, and single ones be told of at once.
        """
        if waited_ms < NEARLY * self._patience_ms:
            return  # refused, which says nothing of the distance
        self._patience_ms = min(2 * self._patience_ms, MOST_METADATA_MS)
        if not is_for_all:
            self._unanswered += 1
            self._next_ms = self._clock.now_ms() + self._unanswered * waited_ms
