"""docs/reference/api.md: every public name, with the signature and docstring that Python's own `help` shows."""

import inspect
import re
from enum import Enum

import kclient_quota
from docs.generate.page import first_paragraph, head, markdown
from kclient_quota.broker import EmbeddedBroker
from kclient_quota.testing.kafka_broker import KafkaBroker

_ROOMS = {
    "Clients": ("Producer", "Consumer", "SerializingProducer", "DeserializingConsumer"),
    "asyncio": ("AIOProducer", "AIOConsumer", "AsyncSerializingProducer", "AsyncDeserializingConsumer"),
    "What clients tell": ("BrokerQuotaState", "MetricName", "MetricKind", "KafkaMetricReader"),
    "Limits of your own": ("ClientQuotaCallback", "ClientQuotaType"),
    "Interceptors": ("ProducerInterceptor", "ConsumerInterceptor", "ProducerRecord", "RecordMetadata"),
}
# What a producer's own sender calls: Python has no name for that, and applications have no use for it.
_OF_ITS_SENDER = {
    "ask_librdkafka",
    "begun_with_librdkafka",
    "flush_librdkafka",
    "hand_to_librdkafka",
    "hasten_librdkafka",
    "serve_librdkafka",
    "with_librdkafka",
}
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


def page() -> str:
    """The whole page."""
    errors = [name for name in kclient_quota._HOMES if isinstance(_of(name), type) and issubclass(_of(name), Exception)]
    placed = {name for names in _ROOMS.values() for name in names}
    rest = [name for name in kclient_quota._HOMES if name not in placed and name not in errors]
    rooms = {**_ROOMS, "Quota administration": tuple(rest), "Errors": tuple(errors)}
    parts = [
        head(
            "API",
            "Everything is imported from `kclient_quota`, but for the embedded broker (`kclient_quota.broker`) and what "
            "the pytest plug-in gives. Methods that are confluent_kafka's own, with its signatures, are not repeated here.",
        )
    ]
    for room, names in rooms.items():
        parts.append(f"## {room}\n")
        parts += [_entry(name, _of(name)) for name in names]
    parts += ["## Brokers for tests\n", _entry("EmbeddedBroker", EmbeddedBroker), _entry("KafkaBroker", KafkaBroker)]
    return "\n".join(parts)


def _of(name: str) -> object:
    return getattr(kclient_quota, name)


def _entry(name: str, thing: object) -> str:
    lines = [f"### {name}", ""]
    if isinstance(thing, type) and not issubclass(thing, Exception):
        # how an enumeration is called is Python's, and of another shape in each version
        lines += ["```text", name if issubclass(thing, Enum) else f"{name}{_signature(thing)}", "```", ""]
    lines += [markdown(thing.__doc__ or ""), ""]
    if isinstance(thing, type):
        lines += [line for member, value in _members(thing) for line in _member(member, value)]
    return "\n".join(lines).rstrip() + "\n"


def _members(thing: type) -> list[tuple[str, object]]:
    """Public methods and properties that come from our own packages."""
    found: dict[str, object] = {}
    for owner in reversed(thing.__mro__):
        if owner.__module__.split(".")[0] in {"kclient_quota", "kclient_telemetry"}:
            found.update(
                (name, value)
                for name, value in vars(owner).items()
                if not name.startswith("_")
                and name not in _OF_ITS_SENDER
                and (callable(value) or isinstance(value, property | classmethod))
            )
    return sorted(
        (name, value) for name, value in found.items() if first_paragraph(value) and not isinstance(value, type)
    )


def _member(name: str, value: object) -> list[str]:
    call = "" if isinstance(value, property) else _signature(getattr(value, "__func__", value))
    return [f"- `{name}{call}`", f"  {first_paragraph(value)}"]


def _signature(thing: object) -> str:
    if isinstance(thing, type) and inspect.isfunction(thing.__init__):  # type: ignore[misc]
        thing = thing.__init__  # type: ignore[misc] # Python 3.11's first releases show those of a `__new__`
    try:
        signed = inspect.signature(thing)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return "(...)"
    parameters = [
        item.replace(annotation=inspect.Parameter.empty) for name, item in signed.parameters.items() if name != "self"
    ]
    return _ADDRESS.sub("", str(signed.replace(parameters=parameters, return_annotation=inspect.Signature.empty)))
