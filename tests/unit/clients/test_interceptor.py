import logging
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from kclient_quota import Consumer, Producer, ShareConsumer
from kclient_quota.clients import interceptor
from kclient_quota.clients.interceptor import (
    ConsumerInterceptor,
    ConsumerInterceptors,
    ProducerInterceptor,
    ProducerInterceptors,
    ProducerRecord,
    RecordMetadata,
    load,
)
from kclient_quota.errors import ConfigError


class Append(ProducerInterceptor):
    def __init__(self, suffix: bytes = b"!") -> None:
        self.suffix = suffix
        self.acknowledged: list[RecordMetadata] = []
        self.configs: Mapping[str, Any] = {}
        self.closed = False

    def configure(self, configs: Mapping[str, Any]) -> None:
        self.configs = configs

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        return ProducerRecord(record.topic, record.value + self.suffix)

    def on_acknowledgement(self, metadata: RecordMetadata, exception: Any, headers: Any) -> None:
        self.acknowledged.append(metadata)

    def close(self) -> None:
        self.closed = True


class Broken(ProducerInterceptor):
    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        raise RuntimeError("on_send")

    def on_acknowledgement(self, metadata: RecordMetadata, exception: Any, headers: Any) -> None:
        raise RuntimeError("on_acknowledgement")

    def close(self) -> None:
        raise RuntimeError("close")


class NeedsArguments(ProducerInterceptor):
    def __init__(self, argument: str) -> None:
        self.argument = argument


def test_each_gets_the_last_result_that_came_back(caplog: pytest.LogCaptureFixture) -> None:
    chain = ProducerInterceptors([Append(b"1"), Broken(), Append(b"2")])
    assert chain.on_send(ProducerRecord("t", b"v")).value == b"v12"
    assert "Error executing interceptor onSend callback for topic: t, partition: -1" in caplog.text


def test_a_failed_send_is_acknowledged_to_all_with_unknowns(caplog: pytest.LogCaptureFixture) -> None:
    last = Append()
    ProducerInterceptors([Broken(), last]).on_send_error(ProducerRecord("t", b"v"), BufferError("full"))
    assert last.acknowledged == [RecordMetadata("t", -1, -1, -1)]
    assert "onAcknowledgement" in caplog.text


def test_close_reaches_everyone(caplog: pytest.LogCaptureFixture) -> None:
    last = Append()
    ProducerInterceptors([Broken(), last]).close()
    assert last.closed
    assert [record.levelno for record in caplog.records] == [logging.ERROR]


def test_interrupts_are_not_contained() -> None:
    class Interrupting(ProducerInterceptor):
        def on_send(self, record: ProducerRecord) -> ProducerRecord:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ProducerInterceptors([Interrupting()]).on_send(ProducerRecord("t"))


def test_consumers_chain() -> None:
    class Drop(ConsumerInterceptor):
        def on_consume(self, records: list[Any]) -> list[Any]:
            return records[1:]

    class Bad(ConsumerInterceptor):
        def on_consume(self, records: list[Any]) -> list[Any]:
            raise ValueError

    messages: list[Any] = [1, 2, 3]
    assert ConsumerInterceptors([Drop(), Bad(), Drop()]).on_consume(messages) == [3]


def test_loading_by_object_class_and_path() -> None:
    ready = Append(b"x")
    loaded = load([ready, Append, "collections.Counter"], {"client.id": "c"}, ())
    assert loaded[0] is ready
    assert ready.configs == {"client.id": "c"}
    assert isinstance(loaded[1], Append)


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("nowhere.at.all.Thing", "'nowhere.at.all.Thing' cannot be imported"),
        ("Thing", "'Thing' cannot be imported"),
        ("collections.NoSuch", "'collections.NoSuch' cannot be imported"),
        (NeedsArguments, "cannot be made without arguments"),
        (object(), "has no on_send()"),
    ],
)
def test_what_cannot_be_loaded_says_why(entry: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=r"interceptor\.classes") as caught:
        load([entry], {}, ("on_send",))
    assert message in str(caught.value)


class Forgets(ProducerInterceptor, ConsumerInterceptor):
    """Its `return` was forgotten."""

    def on_send(self, record: ProducerRecord) -> ProducerRecord:  # type: ignore[empty-body]
        pass

    def on_consume(self, records: list[Any]) -> list[Any]:  # type: ignore[empty-body]
        pass


def test_a_forgotten_return_breaks_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """Each `produce()` and `poll()` raised from then on, for good."""
    assert ProducerInterceptors([Forgets(), Append(), Forgets()]).on_send(ProducerRecord("t", b"v")).value == b"v!"
    messages: list[Any] = [1, 2]
    assert ConsumerInterceptors([Forgets(), Forgets()]).on_consume(messages) == messages
    assert "Forgets.on_send() has returned a NoneType: return the record that is to be sent" in caplog.text
    assert "Forgets.on_consume() has returned a NoneType: return the list of records that go on" in caplog.text
    assert len(caplog.records) == 4


def test_what_is_like_a_record_is_one() -> None:
    class Other(ProducerInterceptor):
        def on_send(self, record: ProducerRecord) -> Any:
            return SimpleNamespace(topic="t", value=b"other", key=None, partition=-1, timestamp=0, headers=None)

    assert ProducerInterceptors([Other()]).on_send(ProducerRecord("t", b"v")).value == b"other"


class Raises(Append):
    def configure(self, configs: Mapping[str, Any]) -> None:
        raise KeyError("my.key")


class CannotBeMade(ProducerInterceptor):
    def __init__(self) -> None:
        raise OSError("no such file")


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        (Raises(), "cannot be configured (KeyError: 'my.key')"),
        (CannotBeMade, "cannot be made (OSError: no such file)"),
        (object(), "has no on_send()"),
    ],
)
def test_what_was_configured_before_a_failure_is_closed(entry: Any, said: str) -> None:
    first = Append()
    with pytest.raises(ConfigError, match=r"interceptor\.classes") as caught:
        load([first, entry], {}, ("on_send",))
    assert said in str(caught.value)
    assert first.closed
    assert getattr(entry, "closed", True) is True


def test_an_interceptor_s_own_words_about_the_configuration_are_kept() -> None:
    class Says(Append):
        def configure(self, configs: Mapping[str, Any]) -> None:
            raise ConfigError("my.key is missing")

    with pytest.raises(ConfigError, match=r"^my\.key is missing$"):
        load([Says()], {}, ("on_send",))


def test_those_of_every_client_are_closed_too(monkeypatch: pytest.MonkeyPatch) -> None:
    first = Append()
    monkeypatch.setattr(interceptor, "everywhere", [lambda: first])
    with pytest.raises(ConfigError):
        load([Raises()], {}, ("on_send",))
    assert first.closed


@pytest.mark.parametrize(
    ("client", "wrong"),
    [
        *(
            (client, wrong)
            for client in (Producer, Consumer, ShareConsumer)
            for wrong in ({"nonsense": 1}, {"stats_cb": 5})
        ),
        (Producer, {"quota.lanes": {"a": {"priority": 7}}}),
    ],
)
def test_a_client_that_cannot_be_made_closes_its_interceptors(client: Any, wrong: dict[str, Any]) -> None:
    class Both(Append, ConsumerInterceptor):
        pass

    first = Both()
    conf = {"bootstrap.servers": "localhost:1", "enable.metrics.push": False, "interceptor.classes": [first], **wrong}
    if client is not Producer:
        conf["group.id"] = "g"
    with pytest.raises(Exception, match=r"nonsense|stats_cb|quota\.lanes|expected"):
        client(conf)
    assert first.closed is bool(first.configs)
