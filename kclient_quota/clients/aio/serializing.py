"""`AsyncSerializingProducer` and `AsyncDeserializingConsumer`: confluent_kafka.aio's, with our pair beneath them.

Made as theirs are, by `await AsyncSerializingProducer({...})`. They do their work and then call `super()`, which is
ours; their constructors name their own base class, so the constructors are ours, too.
"""

import logging
from functools import partial
from typing import TYPE_CHECKING, Any

import confluent_kafka.aio
from confluent_kafka import _serde_builder as serdes

from kclient_quota.clients.aio.consumer import AIOConsumer
from kclient_quota.clients.aio.producer import AIOProducer
from kclient_quota.clients.serializing import K, V

if TYPE_CHECKING:
    from collections.abc import Callable

logger = logging.getLogger("kclient_quota")


class AsyncSerializingProducer(confluent_kafka.aio.AsyncSerializingProducer[K, V], AIOProducer):  # type: ignore[misc]
    """confluent_kafka.aio's AsyncSerializingProducer: `produce()` serializes, then waits as our AIOProducer does.

    Args:
        conf: confluent_kafka's configuration with `key.serializer`, `value.serializer` or their builders and, all
            optional, our keys.
        kwargs: further arguments of our `AIOProducer`, `heartbeat` among them.

    Raises:
        ConfigError: one of our keys is misspelt or cannot be used.
        ValueError: a serializer and its builder are both configured.
    """

    async def _start(self, conf: dict[str, Any], **kwargs: Any) -> None:
        make = partial(AIOProducer.__init__, self, **kwargs)
        found = await _made(self, conf, ("key.serializer", "value.serializer"), make)
        self._key_serializer, self._value_serializer = found

    __init__ = _start


class AsyncDeserializingConsumer(confluent_kafka.aio.AsyncDeserializingConsumer[K, V], AIOConsumer):
    """confluent_kafka.aio's AsyncDeserializingConsumer: `poll()` waits as our AIOConsumer does, then deserializes.

    What is cancelled while it deserializes has taken its messages: they are lost to the application, as with
    confluent_kafka.aio's. Where calls are cancelled, take an `AIOConsumer` and deserialize what it has returned.

    Args:
        conf: confluent_kafka's configuration with `key.deserializer`, `value.deserializer` or their builders and, all
            optional, our keys.
        kwargs: further arguments of our `AIOConsumer`.

    Raises:
        ConfigError: one of our keys is misspelt or cannot be used.
        ValueError: a deserializer and its builder are both configured.
    """

    async def _start(self, conf: dict[str, Any], **kwargs: Any) -> None:
        make = partial(AIOConsumer.__init__, self, **kwargs)
        found = await _made(self, conf, ("key.deserializer", "value.deserializer"), make)
        self._key_deserializer, self._value_deserializer = found

    __init__ = _start


async def _made(
    client: Any, conf: dict[str, Any], keys: tuple[str, str], make: "Callable[[dict[str, Any]], None]"
) -> list[Any]:
    """Build what serializes, then the client, which closes it; when that fails, it is closed here."""
    specs, rest = serdes.pop_serde_props(conf, *keys)
    found, owned, rest = await serdes.async_build_serdes(specs, rest)
    try:
        make(rest)
        resolver = serdes.AsyncSharedClusterIdResolver(client.cluster_id)
        serdes.propagate_async_cluster_id_resolver(resolver, found)
    except BaseException:
        try:
            await serdes.async_close_serdes(owned)
        except Exception:
            # Raised is why the client could not be made, which the application can do something about.
            logger.warning("What serializes could not be closed, either", exc_info=True)
        raise
    client._owned_serdes = owned  # noqa: SLF001 - confluent_kafka's name for what close() closes
    return found
