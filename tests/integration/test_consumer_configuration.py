"""A consumer's configuration: how it is given, and what is said of one that cannot be used."""

from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import KafkaException, TopicPartition

from kclient_quota.clients import PlainConsumer
from kclient_quota.clients.consumer import Consumer
from kclient_quota.clients.consumer.share_consumer import ShareConsumer
from kclient_quota.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.mark.parametrize(
    ("conf", "said"),
    [
        ({"consumer_byte_rate": -1}, "consumer_byte_rate"),
        ({"consumer_byte_rate": 0}, "consumer_byte_rate"),
        ({"consumer_byterate": 1}, "consumer_byte_rate"),
        ({"quota.backoff": "sometimes"}, "quota.backoff"),
        ({"interceptor.classes": "no.such.Thing"}, "no.such.Thing"),
    ],
)
def test_a_configuration_that_cannot_be_used_is_refused_by_name(conf: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        Consumer({"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "quota.limit.source": "auto", **conf})


def test_a_misspelt_key_of_librdkafkas_gets_the_nearest_one_named() -> None:
    with pytest.raises(KafkaException, match=r"auto\.offset\.reset"):
        Consumer({"group.id": "g", "quota.limit.source": "learned", "auto.offset.rest": "earliest"})


def test_configuration_by_keyword_as_confluent_kafka_takes_it() -> None:
    keywords = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "quota.limit.source": "learned"}
    with Consumer(**keywords) as consumer:
        assert consumer.assignment() == []


def outcome(call: Any) -> tuple[str, str]:
    """What a call raises, in words."""
    try:
        call()
    except Exception as error:  # noqa: BLE001 - whatever it is, it is compared
        return type(error).__name__, str(error)
    return "", ""


@pytest.mark.parametrize("arguments", [(), (None,), ([],), ({},), ({"group.id": "g"}, 5), ("x",)])
def test_wrong_arguments_raise_what_the_plain_consumer_raises(arguments: Any) -> None:
    plain = outcome(lambda: PlainConsumer(*arguments))
    assert plain[0]
    assert outcome(lambda: Consumer(*arguments)) == plain


@pytest.mark.parametrize("group", ["", None, " ", "\0g"])
@pytest.mark.parametrize("kind", [Consumer, ShareConsumer])
def test_an_empty_group_is_refused_as_one_that_is_missing(kind: Any, group: str | None) -> None:
    """confluent_kafka ends the process."""
    conf = {"bootstrap.servers": "127.0.0.1:1", "quota.limit.source": "learned", "log_level": 0}
    missing = outcome(lambda: PlainConsumer({"bootstrap.servers": "127.0.0.1:1"}))
    assert "group.id must be set" in missing[1]
    assert outcome(lambda: kind({**conf, "group.id": group})) == missing
    assert outcome(lambda: kind({**conf, "group.id": "\udc80"}))[0] == "UnicodeEncodeError"


def test_a_subclass_that_forgets_the_constructor_raises_what_the_plain_consumers_raises() -> None:
    def forgetful(base: type) -> Any:
        return type("Forgetful", (base,), {"__init__": lambda self: None})()

    calls = {
        "poll": (0.1,),
        "consume": (1, 0.1),
        "assignment": (),
        "position": ([],),
        "commit": (),
        "assign": ([],),
        "unassign": (),
        "seek": (TopicPartition("t", 0, 1),),
        "pause": ([],),
        "resume": ([],),
        "subscribe": (["t"],),
        "unsubscribe": (),
        "store_offsets": (),
        "memberid": (),
        "close": (),
    }
    for name, arguments in calls.items():
        ours, plain = (
            outcome(partial(getattr(forgetful(base), name), *arguments)) for base in (Consumer, PlainConsumer)
        )
        assert ours == plain, name


def test_arguments_of_calls_are_refused_in_the_plain_consumers_words() -> None:
    conf = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g"}
    calls: list[Callable[[Any], Any]] = [
        lambda who: who.poll(None),
        lambda who: who.poll("x"),
        lambda who: who.consume("x"),
        lambda who: who.consume(-1),
        lambda who: who.consume(1, None),
        lambda who: who.consume(num_messages=None),
        lambda who: who.consume(1_000_001),
    ]
    with Consumer({**conf, "quota.limit.source": "learned"}) as ours, PlainConsumer(conf) as plain:
        for call in calls:
            assert outcome(partial(call, ours)) == outcome(partial(call, plain)) != ("", "")


def test_a_failing_oauth_callback_raises_what_it_raises_with_the_plain_consumer() -> None:
    def refuses(_conf: str) -> Any:
        raise ValueError("no token")

    conf = {
        "bootstrap.servers": "127.0.0.1:1",
        "group.id": "g",
        "security.protocol": "sasl_plaintext",
        "sasl.mechanisms": "OAUTHBEARER",
        "oauth_cb": refuses,
    }
    with pytest.raises(KafkaException) as plain:
        PlainConsumer(conf)
    with pytest.raises(KafkaException) as ours:
        Consumer({**conf, "quota.limit.source": "learned"})
    assert ours.value.args[0].code() == plain.value.args[0].code()
