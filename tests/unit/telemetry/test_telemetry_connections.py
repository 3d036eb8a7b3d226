"""A connection that another client instance has taken over belongs to the new one when the old one is forgotten."""

from uuid import UUID

from tests.unit.telemetry.manager_broker import Broker

OTHER = UUID(int=8 << 64)


def test_who_is_forgotten_does_not_take_the_connection_of_his_successor_along():
    broker = Broker(cache_size=1)
    broker.get()
    broker.get(OTHER)
    assert broker.metric("instance-count") == 1, "the first was forgotten for lack of room"
    broker.manager.connection_closed("c1")
    assert broker.metric("instance-count") == 0, "the connection was the second one's"
