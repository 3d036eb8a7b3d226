"""`SerializingProducer` and `DeserializingConsumer`: confluent_kafka's, with our clients beneath them.

Both of confluent_kafka's classes do their work and then call `super()`. So it is enough to put our client between them
and librdkafka in the order of base classes.
"""

from typing import TYPE_CHECKING, Any, Generic

import confluent_kafka
from confluent_kafka.deserializing_consumer import DeserializingConsumer as PlainConsumer
from confluent_kafka.serializing_producer import SerializingProducer as PlainProducer

from kclient_quota.clients.agents import AsGiven, CConsumer, CProducer, given, place, with_methods
from kclient_quota.clients.consumer.consumer import Consumer, OneByOne, PacedConsumer
from kclient_quota.clients.producer.producer import PacedProducer, Producer
from kclient_quota.clients.producer.settings import keep_alive

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    K = TypeVar("K", default=Any)
    V = TypeVar("V", default=Any)
else:
    from typing import TypeVar

    K = TypeVar("K")
    V = TypeVar("V")


def _beneath(plain: type, c: type, ours: type, paced: type, behind: tuple[type, ...]) -> type:
    """Ours, to stand beneath a class of confluent_kafka's.

    Args:
        plain: that class.
        c: what it is made of, where no agent has been there before it.
        ours: stands before what goes by the name of `c` now. An agent that has replaced both names sees calls of
            `plain`, and would see each once more if it stood beneath it, too.
        paced: all of `ours` but its place.
        behind: as of `place`.
    """
    if given(getattr(confluent_kafka, c.__name__), c, paced) in plain.__mro__:
        return ours
    bases, methods = place(plain.__mro__[1], c, paced, behind)
    return with_methods(methods)(type(c.__name__, bases, {}))


if TYPE_CHECKING:
    from kclient_quota.clients.consumer import Consumer as _Consumer
    from kclient_quota.clients.producer import Producer as _Producer
else:
    _Producer = _beneath(PlainProducer, CProducer, Producer, PacedProducer, (PacedProducer, AsGiven))
    _Consumer = _beneath(PlainConsumer, CConsumer, Consumer, PacedConsumer, (OneByOne,))


class _Serializing(PlainProducer[K, V], _Producer):  # type: ignore[misc]
    """All of `SerializingProducer` but its place in line with what a tracing agent puts in confluent_kafka's place."""


class _Deserializing(PlainConsumer[K, V], _Consumer):  # type: ignore[misc]
    """All of `DeserializingConsumer` but its place in line, as above."""


if TYPE_CHECKING:

    class SerializingProducer(_Serializing[K, V]):
        """What mypy sees."""

        def __init__(self, conf: dict[str, Any], *, heartbeat: Any = None) -> None: ...

    class DeserializingConsumer(_Deserializing[K, V]):
        """What mypy sees."""

else:
    _BASES, _METHODS = place(confluent_kafka.SerializingProducer, PlainProducer, _Serializing, None)

    # An agent's class need not be generic.
    @with_methods(_METHODS)
    class SerializingProducer(*_BASES, Generic[K, V]):
        """confluent_kafka's SerializingProducer under a quota: `produce()` serializes, then waits as our Producer does.

        Args:
            conf: confluent_kafka's configuration with `key.serializer`, `value.serializer` or their builders and, all
                optional, our keys.
            heartbeat: a consumer to keep in its group while this producer waits.

        Raises:
            ConfigError: one of our keys is misspelt or cannot be used.
            ValueError: a serializer and its builder are both configured.
        """

        def __init__(self, conf: dict[str, Any], *, heartbeat: Any = None) -> None:
            beats = keep_alive(heartbeat)
            super().__init__(conf)
            self._kq_heartbeat = beats

    _BASES, _METHODS = place(confluent_kafka.DeserializingConsumer, PlainConsumer, _Deserializing, None)

    @with_methods(_METHODS)
    class DeserializingConsumer(*_BASES, Generic[K, V]):
        """confluent_kafka's DeserializingConsumer under a quota: `poll()` waits as our Consumer, then deserializes.

        Args:
            conf: confluent_kafka's configuration with `key.deserializer`, `value.deserializer` or their builders and,
                all optional, our keys.

        Raises:
            ConfigError: one of our keys is misspelt or cannot be used.
            ValueError: a deserializer and its builder are both configured.
        """
