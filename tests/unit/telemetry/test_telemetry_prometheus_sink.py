"""Nobody waits for the page of Prometheus: neither for a large push nor while the page is made."""

import threading
from contextlib import contextmanager

import pytest
from kclient_telemetry.receiver.endpoint import PrometheusEndpoint
from kclient_telemetry.receiver.prometheus import PrometheusStore
from kclient_telemetry.receiver.prometheus_sink import PrometheusSink

from tests.unit.telemetry.test_telemetry_prometheus import gauge, only, payload_of, push, samples

SMALL, OTHER = payload_of(gauge("depth", 1.0)), payload_of(gauge("depth", 2.0))
LARGE = payload_of(*[gauge("depth", 3.0, (("number", str(number)),)) for number in range(2_000)], gauge("depth", 3.0))
assert len(LARGE) > 50_000


@contextmanager
def busy(store):
    """Somebody else is at the store, as while a page is made."""
    begun, ends = threading.Event(), threading.Event()

    def hold():
        with store._lock:
            begun.set()
            ends.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    begun.wait()
    try:
        yield
    finally:
        ends.set()
        thread.join()


def test_a_small_push_is_on_the_page_at_once():
    push(PrometheusSink(store := PrometheusStore()), SMALL)
    assert only(store, "depth") == 1.0


@pytest.mark.parametrize("payload", [SMALL, LARGE], ids=["small", "large"])
def test_nobody_waits_for_a_store_that_others_are_at(payload):
    sink = PrometheusSink(store := PrometheusStore())
    with busy(store):
        push(sink, payload)
        assert not store.pushes
    sink.close(60_000)
    assert store.pushes == 1
    assert set(samples(store)["depth"].values()) == ({1.0} if payload is SMALL else {3.0})


def test_what_comes_behind_a_large_push_does_not_overtake_it():
    sink = PrometheusSink(store := PrometheusStore())
    with busy(store):
        push(sink, LARGE)
    push(sink, OTHER)
    sink.close(60_000)
    values = list(samples(store)["depth"].values())
    assert (values.count(2.0), values.count(3.0)) == (1, 2_000)


def test_a_page_may_be_made_between_the_steps_of_a_large_push():
    store, seen = PrometheusStore(), []

    class Looking(PrometheusSink):
        def accept(self, push):
            for _ in store.steps(push):
                assert not store._lock._is_owned()
                seen.append(store._series)

    push(Looking(store), LARGE)
    assert len(seen) == 21
    assert seen[0] == 100
    assert seen[-1] == 2_001


def test_an_endpoint_takes_what_is_waiting_before_it_ends():
    endpoint = PrometheusEndpoint()
    with busy(endpoint.store):
        push(endpoint, LARGE)
        assert not endpoint.store.pushes
    endpoint.close(60_000)
    assert len(samples(endpoint.store)["depth"]) == 2_001


def test_what_a_page_has_not_got_when_it_ends_is_nobodys_loss(caplog):
    """The line for files, that so many pushes were not written, was said of a page that nobody can read any more."""
    endpoint = PrometheusEndpoint()
    with busy(endpoint.store):
        push(endpoint, LARGE)
        endpoint.close(1)
    assert "not written" not in caplog.text
