"""Producers where applications live: signals, agents, forks, pools, threads. Each scene has a process of its own."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kclient_quota.broker import EmbeddedBroker
from kclient_quota.clients.producer import Producer

ROOT = Path(__file__).parents[2]
LIMITS = pytest.mark.parametrize("limit", ["0", "2000000"], ids=["free", "limited"])


def played(scene: str, broker: EmbeddedBroker, *args: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.integration.field_scripts", scene, broker.bootstrap_servers, *args]
    done = subprocess.run(command, capture_output=True, text=True, timeout=150, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr[-3_000:]
    return dict(json.loads(done.stdout.splitlines()[-1]))


@LIMITS
def test_ten_thousand_interrupts_lose_no_report(broker: EmbeddedBroker, limit: str) -> None:
    found = played("interrupts", broker, limit)
    assert found == {"other": [], "missing": 0, "twice": 0, "left": [0, 0], "closed": True}


def test_a_handler_may_flush_and_close_while_produce_waits(broker: EmbeddedBroker) -> None:
    found = played("sigterm", broker, "20000")
    # The call that the handler has ended may have handed its message over; it was not counted.
    assert found.pop("missing") in {0, -1}
    assert found == {"flushed": 0, "closed": True, "errors": 0}


@LIMITS
def test_a_subclass_put_in_place_of_confluent_kafkas_sees_every_call(broker: EmbeddedBroker, limit: str) -> None:
    found = played("replaced", broker, limit)
    assert found == {"calls": 20, "reports": 20, "left": 0, "own": True, "closed": True, "headers": 20}


@pytest.mark.skipif(
    importlib.util.find_spec("opentelemetry.instrumentation") is None,
    reason="needs opentelemetry-instrumentation-confluent-kafka",
)
@pytest.mark.parametrize("when", ["before", "after"])
@LIMITS
def test_opentelemetrys_instrumentation_gives_the_spans_it_gives_with_plain(
    broker: EmbeddedBroker, limit: str, when: str
) -> None:
    plain = played("opentelemetry", broker, limit, when, "plain")
    assert played("opentelemetry", broker, limit, when, "ours") == plain
    assert plain["spans"] == (5 if when == "before" else 0)
    assert plain["parents"] == plain["spans"]


@LIMITS
def test_children_of_a_fork_have_their_own_and_are_told_of_their_parents(broker: EmbeddedBroker, limit: str) -> None:
    found = played("forked", broker, limit)
    assert (found["left"], found["closed"]) == (0, True)
    own, parents = found["children"]
    assert own == [False, 0, 0, 0, True]
    # librdkafka's locks may be held for ever in a child: its parent's producer counts what it loses, and calls nobody.
    assert parents == [True, 3, 1, 0, False]


@pytest.mark.parametrize("how", ["exits", "goes on"])
def test_a_child_that_a_callback_forks_while_produce_waits_does_not_wait(broker: EmbeddedBroker, how: str) -> None:
    found = played("callback_forks", broker, "100000", how)
    assert found == {"child": 7, "reports": 400, "closed": True}


def test_a_pool_of_spawned_processes_gets_our_errors(broker: EmbeddedBroker) -> None:
    assert played("pools", broker, "0") == {"retry": True}


def test_a_producer_that_is_not_made_says_what_confluent_kafkas_says() -> None:
    class Forgets(Producer):
        def __init__(self) -> None:
            """Call nobody."""

    for call in (
        lambda it: it.produce("t"),
        lambda it: it.poll(0),
        lambda it: it.flush(0),
        lambda it: it.purge(),
        lambda it: it.begin_transaction(),
        lambda it: it.commit_transaction(),
        lambda it: it.abort_transaction(),
    ):
        with pytest.raises(RuntimeError, match="closed"):
            call(Forgets())
    assert (len(Forgets()), Forgets().close()) == (0, True)
    for args in ((), (None,), ([],)):
        with pytest.raises(TypeError, match="expected configuration dict"):
            Producer(*args)


def test_where_no_broker_is_reachable_produce_returns_at_once_and_close_ends() -> None:
    conf = {"bootstrap.servers": "127.0.0.1:1", "log_level": 0, "message.timeout.ms": 1_000}
    producer = Producer(conf)
    errors: list[str] = []
    began_ms = producer._kq_clock.now_ms()
    for _ in range(10):
        producer.produce("orders", b"x", on_delivery=lambda error, _: errors.append(error.name()))
    assert producer._kq_clock.now_ms() - began_ms < 300
    assert producer.flush(60) == 0
    assert errors == ["_MSG_TIMED_OUT"] * 10
    assert producer.close()


@pytest.mark.parametrize("key", ["message.timeout.ms", "delivery.timeout.ms"])
def test_a_message_may_be_worth_sending_for_five_milliseconds_only(key: str) -> None:
    assert Producer({"bootstrap.servers": "127.0.0.1:1", "log_level": 0, key: 5}).close()


@pytest.mark.filterwarnings("ignore:Producer abort_transaction failed:RuntimeWarning")
def test_it_closes_after_transactions_could_not_be_begun() -> None:
    producer = Producer({"bootstrap.servers": "127.0.0.1:1", "log_level": 0, "transactional.id": "t"})
    with pytest.raises(Exception, match=r"[Tt]imed out"):
        producer.init_transactions(0.3)
    assert producer.close()
    with pytest.raises(RuntimeError, match="closed"):
        producer.poll(0)
