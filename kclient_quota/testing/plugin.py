"""The pytest plug-in (entry point `pytest11`): fixtures for services that use Kafka under quotas."""

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

from kclient_quota.testing.clock import ManualClock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kclient_quota.broker import EmbeddedBroker


@pytest.fixture
def manual_clock() -> ManualClock:
    """A clock at zero that moves only when told to."""
    return ManualClock()


@pytest.fixture
def kafka_broker_factory() -> "Iterator[Callable[..., EmbeddedBroker]]":
    """Start embedded brokers with the arguments of `EmbeddedBroker`; all are stopped when the test ends."""
    from kclient_quota.broker import EmbeddedBroker  # noqa: PLC0415 - only tests that ask for a broker pay for it

    with ExitStack() as stack:

        def start(**arguments: Any) -> EmbeddedBroker:
            return stack.enter_context(EmbeddedBroker(**arguments))

        yield start


@pytest.fixture
def kafka_broker(kafka_broker_factory: "Callable[..., EmbeddedBroker]") -> "EmbeddedBroker":
    """One embedded broker without topics (they are made when first written to), stopped when the test ends."""
    return kafka_broker_factory()
