"""The runner: step by step under a manual clock, and as a thread whose every wait ends in an event."""

import subprocess
import sys
import threading
import time
from dataclasses import replace
from uuid import UUID

import pytest
from kclient_telemetry.client.collector import Collector
from kclient_telemetry.client.reporter import TelemetryReporter
from kclient_telemetry.client.runner import SystemTelemetryClock, TelemetryRunner
from kclient_telemetry.client.states import State
from kclient_telemetry.errors import TransportError
from kclient_telemetry.messages import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
    PushTelemetryRequest,
    PushTelemetryResponse,
)

ID = UUID(int=3)
SUBSCRIPTION = GetTelemetrySubscriptionsResponse(
    client_instance_id=ID, subscription_id=1, push_interval_ms=1_000, requested_metrics=("*",)
)


class HandClock:
    def __init__(self):
        self.now = 0

    def now_ms(self):
        return self.now

    def unix_ms(self):
        return 1_700_000_000_000 + self.now


class Scripted:
    """A transport that answers from a list; an exception in it is raised."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.requests = []
        self.closed = 0

    def send(self, request, timeout_ms):
        assert timeout_ms > 0
        self.requests.append(request)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def close(self):
        self.closed += 1


def runner_with(transport, clock=None):
    reporter = TelemetryReporter(Collector(), uniform=lambda: 0.5)
    return reporter, TelemetryRunner(reporter, transport, clock=clock or HandClock())


def test_other_credentials_are_tried_at_once_where_the_former_were_refused():
    clock = HandClock()
    transport = Scripted(TransportError("wrong password", retriable=False), SUBSCRIPTION)
    _, runner = runner_with(transport, clock)
    assert runner.step() == 0
    assert runner.step() == 300_000
    runner.log_in_anew()
    assert runner.step() == 0
    assert runner.client_instance_id(0) == ID
    runner.log_in_anew()
    assert runner.step() == 1_000, "nothing was refused"


def test_steps_subscribe_push_and_wait():
    clock, transport = HandClock(), Scripted(SUBSCRIPTION, PushTelemetryResponse())
    reporter, runner = runner_with(transport, clock)
    assert runner.step() == 0
    assert runner.client_instance_id(0) == ID
    assert runner.step() == 1_000
    clock.now = 1_000
    assert runner.step() == 0
    assert [type(request) for request in transport.requests] == [GetTelemetrySubscriptionsRequest, PushTelemetryRequest]
    assert reporter.counters.pushes == 1


@pytest.mark.parametrize(("retriable", "wait"), [(True, 1_000), (False, 300_000)])
def test_a_failed_request_is_reported_to_the_reporter(retriable, wait):
    reporter, runner = runner_with(Scripted(TransportError("no broker", retriable=retriable)))
    assert runner.step() == 0
    assert runner.step() == wait
    assert reporter.counters.failed == 1


def test_an_answer_of_the_wrong_kind_is_a_failure():
    reporter, runner = runner_with(Scripted(PushTelemetryResponse()))
    assert runner.step() == 0
    assert runner.step() == 300_000
    assert reporter.state is State.SUBSCRIPTION_NEEDED


def test_closing_makes_the_last_push_and_then_there_is_nothing_to_do():
    transport = Scripted(SUBSCRIPTION, PushTelemetryResponse())
    _, runner = runner_with(transport)
    runner.step()
    runner.close(500)
    assert runner.step() == 0
    assert runner.step() is None
    assert transport.requests[-1].terminating


def test_an_id_that_nobody_gives_is_none_and_a_negative_timeout_is_refused():
    _, runner = runner_with(Scripted())
    assert runner.client_instance_id(0) is None
    with pytest.raises(ValueError, match="The timeout cannot be negative"):
        runner.client_instance_id(-1)


class Broker:
    """Answers in the runner's thread; tells when it got its second and its terminating push."""

    def __init__(self):
        self.pushed_twice = threading.Event()
        self.terminated = threading.Event()
        self.closed = threading.Event()
        self.pushes = 0

    def send(self, request, timeout_ms):
        if isinstance(request, GetTelemetrySubscriptionsRequest):
            return replace(SUBSCRIPTION, push_interval_ms=1)
        self.pushes += 1
        if self.pushes > 1:
            self.pushed_twice.set()
        if request.terminating:
            self.terminated.set()
        return PushTelemetryResponse()

    def close(self):
        self.closed.set()


def test_as_a_thread():
    broker = Broker()
    _, runner = runner_with(broker, SystemTelemetryClock())
    runner.start()
    assert runner.client_instance_id(60_000) == ID
    assert broker.pushed_twice.wait(60)
    assert runner.close(60_000)
    assert runner.close(0)
    assert broker.terminated.is_set()
    assert broker.closed.is_set()


HOUR_MS = 3_600_000


def test_whoever_begins_later_has_asked_nobody_when_it_is_closed_before():
    transport = Scripted(SUBSCRIPTION)
    _, runner = runner_with(transport, SystemTelemetryClock())
    runner.start(after_ms=HOUR_MS)
    assert runner.client_instance_id(0) is None
    assert runner.close(60_000)
    assert transport.requests == []


def test_whoever_wants_to_know_the_id_does_not_wait_for_that():
    _, runner = runner_with(Broker(), SystemTelemetryClock())
    runner.start(after_ms=HOUR_MS)
    assert runner.client_instance_id(60_000) == ID
    assert runner.close(60_000)


class Silent:
    """Answers the first fetches that it is told to, then nothing until it is closed."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.asked = threading.Event()
        self.released = threading.Event()

    def send(self, request, timeout_ms):
        if self.answers:
            return self.answers.pop(0)
        self.asked.set()
        assert self.released.wait(150)
        raise TransportError("aborted")

    def close(self):
        self.released.set()


def test_closing_is_bounded_when_the_broker_does_not_answer_a_push():
    broker = Silent(replace(SUBSCRIPTION, push_interval_ms=1))
    _, runner = runner_with(broker, SystemTelemetryClock())
    runner.start()
    assert broker.asked.wait(60)
    runner.close(20)
    assert broker.released.is_set()
    assert runner.close(60_000)


def test_closing_waits_for_nothing_when_there_was_never_a_subscription():
    broker = Silent()
    _, runner = runner_with(broker, SystemTelemetryClock())
    runner.start()
    assert broker.asked.wait(60)
    began = time.monotonic()
    assert runner.close(120_000)
    assert time.monotonic() - began < 60


@pytest.mark.parametrize("error", [RuntimeError("not a TransportError"), SystemExit(3)], ids=repr)
def test_an_unknown_error_of_a_transport_does_not_end_telemetry(caplog, error):
    happened = threading.Event()

    class Broken:
        def send(self, request, timeout_ms):
            happened.set()
            raise error

        def close(self):
            pass

    _, runner = runner_with(Broken(), SystemTelemetryClock())
    runner.start()
    assert happened.wait(60)
    assert runner.close(60_000)
    assert "met an error it does not know" in caplog.text


def test_a_process_ends_although_a_runner_is_busy():
    script = """
import threading
from kclient_telemetry.client.collector import Collector
from kclient_telemetry.client.reporter import TelemetryReporter
from kclient_telemetry.client.runner import TelemetryRunner
asked = threading.Event()
class Silent:
    def send(self, request, timeout_ms):
        asked.set()
        threading.Event().wait(600)
    def close(self):
        pass
TelemetryRunner(TelemetryReporter(Collector(), uniform=lambda: 0.5), Silent()).start()
assert asked.wait(60)
"""
    done = subprocess.run([sys.executable, "-c", script], timeout=120, check=False)
    assert done.returncode == 0
