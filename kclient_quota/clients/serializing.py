"""`SerializingProducer` and `DeserializingConsumer`: confluent_kafka's, with our clients beneath them.

Both of confluent_kafka's classes do their work and then call `super()`. So it is enough to put our client between them
and librdkafka in the order of base classes.
"""

from typing import TYPE_CHECKING, Any

import confluent_kafka

from kclient_quota.clients.consumer.consumer import Consumer, PacedConsumer
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


if TYPE_CHECKING:
    from kclient_quota.clients.consumer import Consumer as _Consumer
    from kclient_quota.clients.producer import Producer as _Producer
else:
    # An agent that has replaced these two as well sees their calls; below them it would see each once more.
    _Producer = Producer if confluent_kafka.Producer in confluent_kafka.SerializingProducer.__mro__ else PacedProducer
    _Consumer = Consumer if confluent_kafka.Consumer in confluent_kafka.DeserializingConsumer.__mro__ else PacedConsumer


class SerializingProducer(confluent_kafka.SerializingProducer[K, V], _Producer):  # type: ignore[misc]
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
        super().__init__(conf)
        self._heartbeat = keep_alive(heartbeat)


class DeserializingConsumer(confluent_kafka.DeserializingConsumer[K, V], _Consumer):  # type: ignore[misc]
    """confluent_kafka's DeserializingConsumer under a quota: `poll()` waits as our Consumer does, then deserializes.

    Args:
        conf: confluent_kafka's configuration with `key.deserializer`, `value.deserializer` or their builders and, all
            optional, our keys.

    Raises:
        ConfigError: one of our keys is misspelt or cannot be used.
        ValueError: a deserializer and its builder are both configured.
    """
