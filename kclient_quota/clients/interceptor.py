"""Interceptor chains (KIP-42) with the containment rules of Kafka's ProducerInterceptors and ConsumerInterceptors.

An interceptor may change or watch, never break: what it raises is logged; the last good value goes on.
"""

import importlib
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar, cast

from confluent_kafka import KafkaError, Message, TopicPartition

from kclient_quota.errors import ConfigError

logger = logging.getLogger("kclient_quota")

_KEY: Final = "interceptor.classes"
UNKNOWN_PARTITION = -1
UNKNOWN_OFFSET = -1
NO_TIMESTAMP = -1

Kind = TypeVar("Kind")


@dataclass(frozen=True, slots=True)
class ProducerRecord:
    """What the application handed to `produce()`, before serialization and partitioning.

    Attributes:
        partition: -1 where librdkafka's partitioner decides.
        timestamp: milliseconds since the epoch, 0 for now.
    """

    topic: str
    value: Any = None
    key: Any = None
    partition: int = UNKNOWN_PARTITION
    timestamp: int = 0
    headers: Any = None


@dataclass(frozen=True, slots=True)
class RecordMetadata:
    """Where a record ended; -1 for what is not known because it failed (Kafka's RecordMetadata)."""

    topic: str
    partition: int = UNKNOWN_PARTITION
    offset: int = UNKNOWN_OFFSET
    timestamp: int = NO_TIMESTAMP


class ProducerInterceptor:
    """Base of a producer's interceptors; override what is of interest (org.apache.kafka.clients.producer)."""

    def configure(self, configs: Mapping[str, Any]) -> None:
        """Called once with the client's whole configuration."""

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """Called in the thread of `produce()` before anything else; returns the record to send, changed or not."""
        return record

    def on_acknowledgement(
        self, metadata: RecordMetadata, exception: KafkaError | BaseException | None, headers: Any
    ) -> None:
        """Called once per record, before the application's delivery callback, in the thread that polls."""

    def close(self) -> None:
        """Called once when the producer closes."""


class ConsumerInterceptor:
    """Base of a consumer's interceptors; override what is of interest (org.apache.kafka.clients.consumer)."""

    def configure(self, configs: Mapping[str, Any]) -> None:
        """Called once with the client's whole configuration."""

    def on_consume(self, records: list[Message]) -> list[Message]:
        """Called in the polling thread just before records reach the application; returns those that shall."""
        return records

    def on_commit(self, offsets: list[TopicPartition]) -> None:
        """Called after a commit that succeeded."""

    def close(self) -> None:
        """Called once when the consumer closes."""


everywhere: list[Callable[[], ProducerInterceptor | ConsumerInterceptor]] = []
"""Make the interceptors that every client of this process gets before its own."""


class _Chain(Generic[Kind]):
    """What both chains have in common.

    Args:
        interceptors: objects, in order; see `load`.
    """

    def __init__(self, interceptors: Sequence[Kind]) -> None:
        self._interceptors = tuple(interceptors)

    def __bool__(self) -> bool:
        return bool(self._interceptors)

    def close(self) -> None:
        """Close every interceptor, whatever the others do."""
        _close_all(self._interceptors)


class ProducerInterceptors(_Chain[ProducerInterceptor]):
    """A producer's chain."""

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """Hand the record down the chain; each gets the last one that came back without an exception."""
        for interceptor in self._interceptors:
            try:
                record = _record(interceptor, interceptor.on_send(record))
            except Exception:
                logger.warning(
                    "Error executing interceptor onSend callback for topic: %s, partition: %s",
                    record.topic,
                    record.partition,
                    exc_info=True,
                )
        return record

    def on_acknowledgement(self, message: Message, error: KafkaError | None, headers: Any = None) -> None:
        """Tell every interceptor how a record that librdkafka had accepted ended.

        Args:
            message: of the delivery report, in which librdkafka leaves headers out.
            error: why it failed, if so.
            headers: the record's, as the chain left them: an interceptor tells by them which record it is.
        """
        failed = error is not None
        metadata = RecordMetadata(
            topic=message.topic() or "",
            partition=_known(message.partition()),
            offset=UNKNOWN_OFFSET if failed else _known(message.offset()),
            timestamp=NO_TIMESTAMP if failed else message.timestamp()[1],
        )
        self._acknowledge(metadata, error, headers)

    def on_send_error(self, record: ProducerRecord, error: BaseException) -> None:
        """Tell every interceptor that a record was refused before librdkafka accepted it."""
        self._acknowledge(RecordMetadata(record.topic, _known(record.partition)), error, record.headers)

    def _acknowledge(self, metadata: RecordMetadata, error: KafkaError | BaseException | None, headers: Any) -> None:
        for interceptor in self._interceptors:
            try:
                interceptor.on_acknowledgement(metadata, error, headers)
            except Exception:
                logger.warning("Error executing interceptor onAcknowledgement callback", exc_info=True)


class ConsumerInterceptors(_Chain[ConsumerInterceptor]):
    """A consumer's chain."""

    def on_consume(self, records: list[Message]) -> list[Message]:
        """Hand records down the chain; each gets the last list that came back without an exception."""
        for interceptor in self._interceptors:
            try:
                records = _records(interceptor, interceptor.on_consume(records))
            except Exception:
                logger.warning("Error executing interceptor onConsume callback", exc_info=True)
        return records

    def on_commit(self, offsets: list[TopicPartition]) -> None:
        """Tell every interceptor of a commit that succeeded."""
        for interceptor in self._interceptors:
            try:
                interceptor.on_commit(offsets)
            except Exception:
                logger.warning("Error executing interceptor onCommit callback", exc_info=True)


def load(declared: Iterable[Any], configs: Mapping[str, Any], methods: tuple[str, ...]) -> list[Any]:
    """Make interceptors of what `interceptor.classes` names and configure them.

    Args:
        declared: objects, classes or dotted paths.
        configs: the client's whole configuration, handed to each `configure`.
        methods: what each must have, such as ("on_send", "on_acknowledgement").

    Raises:
        ConfigError: one that cannot be imported, made or configured, or that lacks a method.
    """
    loaded: list[Any] = []
    try:
        for factory in everywhere:
            made = factory()
            if all(hasattr(made, method) for method in methods):
                loaded.append(made)
                made.configure(configs)
        for entry in declared:
            loaded.append(_fitting(entry, methods))
            _configure(loaded[-1], entry, configs)
    except BaseException:
        _close_all(loaded)  # they may have opened files and connections
        raise
    return loaded


@contextmanager
def closing_unless_made(chain: "ProducerInterceptors | ConsumerInterceptors") -> Iterator[None]:
    """While a client is made: if it cannot be, nobody would ever close its interceptors."""
    try:
        yield
    except BaseException:
        chain.close()
        raise


def _fitting(entry: Any, methods: tuple[str, ...]) -> Any:
    interceptor = instantiate(entry, _KEY)
    missing = [method for method in methods if not callable(getattr(interceptor, method, None))]
    if missing:
        raise ConfigError(f"{_KEY}: {entry!r} has no {missing[0]}() and cannot be used here")
    return interceptor


def _configure(interceptor: Any, entry: Any, configs: Mapping[str, Any]) -> None:
    configure = getattr(interceptor, "configure", None)
    try:
        if configure is not None:
            configure(configs)
    except ConfigError:
        raise
    except Exception as error:
        raise ConfigError(f"{_KEY}: {entry!r} cannot be configured ({type(error).__name__}: {error})") from error


def instantiate(entry: Any, key: str) -> Any:
    """Make an object of a dotted path, a class, or an object that is one already.

    Raises:
        ConfigError: naming `key`, when the path leads nowhere or the class cannot be called without arguments.
    """
    target = _imported(entry, key) if isinstance(entry, str) else entry
    if not isinstance(target, type):
        return target
    try:
        return target()
    except TypeError as error:
        raise ConfigError(
            f"{key}: {entry!r} cannot be made without arguments ({error}): give an object instead"
        ) from error
    except ConfigError:
        raise
    except Exception as error:
        raise ConfigError(f"{key}: {entry!r} cannot be made ({type(error).__name__}: {error})") from error


def _imported(path: str, key: str) -> Any:
    module_name, _, name = path.rpartition(".")
    try:
        return getattr(importlib.import_module(module_name), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(f"{key}: {path!r} cannot be imported ({error}): give package.module.Class") from error


def _record(interceptor: Any, result: Any) -> ProducerRecord:
    """What may go on: a `return` that was forgotten would fail each `produce()` from then on."""
    if isinstance(result, ProducerRecord) or all(hasattr(result, name) for name in ProducerRecord.__slots__):
        return cast("ProducerRecord", result)
    raise TypeError(_returned(interceptor, "on_send", result, "the record that is to be sent"))


def _records(interceptor: Any, result: Any) -> list[Message]:
    """The same of records that were read."""
    if isinstance(result, list):
        return result
    raise TypeError(_returned(interceptor, "on_consume", result, "the list of records that go on"))


def _returned(interceptor: Any, method: str, result: Any, wanted: str) -> str:
    return f"{type(interceptor).__name__}.{method}() has returned a {type(result).__name__}: return {wanted}"


def _known(number: int | None) -> int:
    return UNKNOWN_PARTITION if number is None or number < 0 else number


def _close_all(interceptors: Iterable[Any]) -> None:
    for interceptor in interceptors:
        close = getattr(interceptor, "close", None)
        if close is None:
            continue
        try:
            close()
        except Exception:
            logger.exception("Failed to close interceptor %s", type(interceptor).__name__)
