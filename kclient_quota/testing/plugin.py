"""The pytest plug-in (entry point `pytest11`): fixtures for services that use Kafka under quotas.

    @pytest.mark.kafka_quota(client_id="shop", producer_byte_rate=20_000)
    def test_every_order_arrives(kafka_broker):
        run_my_service(kafka_broker.bootstrap_servers)
        assert len(kafka_broker.records("orders")) == 50

Every test has a broker of its own, in its own process and on free ports: tests may run side by side (pytest-xdist).
"""

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

from kclient_quota.errors import ConfigError
from kclient_quota.testing.clock import ManualClock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kclient_quota.testing.kafka_broker import KafkaBroker

MARK = "kafka_quota"
_ENTITIES = {"client_id", "user", "ip", "default_client_id", "default_user", "default_ip"}


def pytest_configure(config: pytest.Config) -> None:
    """Make the mark known to `--strict-markers`."""
    config.addinivalue_line(
        "markers",
        f"{MARK}(client_id=..., user=..., producer_byte_rate=..., consumer_byte_rate=..., request_percentage=...): "
        "a quota on the fixture kafka_broker, bytes per second and broker; without a name it holds for every client; "
        "may be given several times",
    )


@pytest.fixture
def manual_clock() -> ManualClock:
    """A clock at zero that moves only when told to."""
    return ManualClock()


@pytest.fixture
def kafka_broker_factory() -> "Iterator[Callable[..., KafkaBroker]]":
    """Start embedded brokers with the arguments of `EmbeddedBroker`; all are stopped when the test ends."""
    from kclient_quota.testing.kafka_broker import KafkaBroker  # noqa: PLC0415 - who asks for a broker pays for it

    with ExitStack() as stack:

        def start(**arguments: Any) -> KafkaBroker:
            return stack.enter_context(KafkaBroker(**arguments))

        yield start


@pytest.fixture
def kafka_broker(kafka_broker_factory: "Callable[..., KafkaBroker]", request: pytest.FixtureRequest) -> "KafkaBroker":
    """One embedded broker with the quotas of the test's marks; topics are made when first written to."""
    broker = kafka_broker_factory()
    for mark in request.node.iter_markers(MARK):
        if mark.args or not mark.kwargs:
            pytest.fail(
                f"@pytest.mark.{MARK} takes names: @pytest.mark.{MARK}(client_id='shop', producer_byte_rate=20_000)",
                pytrace=False,
            )
        everybody: dict[str, Any] = {} if mark.kwargs.keys() & _ENTITIES else {"default_client_id": True}
        try:
            broker.set_quota(**everybody, **mark.kwargs)
        except ConfigError as error:
            pytest.fail(f"@pytest.mark.{MARK}: {error}", pytrace=False)
    return broker
