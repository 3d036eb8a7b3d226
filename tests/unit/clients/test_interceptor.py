import logging
from collections.abc import Mapping
from typing import Any

import pytest

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
