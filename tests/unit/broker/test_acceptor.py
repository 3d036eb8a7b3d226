"""Whom a broker lets in and when (KIP-612), on transports of paper."""

import pytest

from kclient_quota.broker.cluster_state import BROKER
from kclient_quota.broker.network.acceptor import Acceptor
from kclient_quota.broker.network.connection import Connection
from kclient_quota.broker.network.session import ReceiveBuffer
from kclient_quota.quota.entity import ClientQuotaEntity
from tests.unit.broker.enforced_cluster import Cluster
from tests.unit.broker.test_connection import PaperTransport, metadata

ADDRESS = "10.1.2.3"


class Door:
    """A listener and those who come to it, all from `ADDRESS`."""

    def __init__(self):
        self.cluster = Cluster()
        self.node = self.cluster.nodes[0]
        self.acceptor = Acceptor(self.node, "PLAINTEXT")
        self.scheduler = self.cluster.scheduler

    def limit(self, rate):
        entity = ClientQuotaEntity.of(ip=ADDRESS)
        self.node.enforcement.update_quota(entity, "connection_creation_rate", rate)

    def come(self, count=1):
        made = []
        for _ in range(count):
            connection = Connection(
                self.node,
                "PLAINTEXT",
                ReceiveBuffer(),
                self.acceptor.arrived,
                lambda _connection: None,
                needs_authentication=False,
            )
            transport = PaperTransport(connection)
            connection.connection_made(transport)
            made.append(transport)
        return made

    def serves(self, transport):
        """Whether a request is read and answered."""
        if transport.is_closed or not transport.is_reading:
            return False
        frame = metadata(1)
        transport.protocol.get_buffer(-1)[: len(frame)] = frame
        transport.protocol.buffer_updated(len(frame))
        return bool(transport.written)


def test_whoever_comes_too_often_is_not_read_and_closed_after_the_throttle():
    door = Door()
    door.limit(1)
    *welcome, refused = door.come(11)
    assert all(map(door.serves, welcome))
    assert (refused.is_reading, refused.is_closed) == (False, False)
    assert door.node.traffic.connections == door.node.traffic.connections_made == 10
    door.scheduler.pass_ms(999)
    assert not refused.is_closed
    door.scheduler.pass_ms(1)
    assert refused.is_closed
    assert door.node.traffic.connections == 10
    assert all(map(door.serves, welcome))


def test_one_that_goes_away_before_that_is_forgotten():
    door = Door()
    door.limit(1)
    *_, refused = door.come(11)
    refused.close()
    door.scheduler.pass_ms(2000)
    assert door.node.traffic.connections == 10
    assert door.node.traffic.by_address == {ADDRESS: 10}


@pytest.mark.parametrize("name", ["", "1"])
def test_a_broker_that_takes_few_takes_them_one_after_the_other(name):
    door = Door()
    door.node.cluster.set_config(BROKER, name, "max.connection.creation.rate", "5")
    assert all(map(door.serves, door.come(50)))
    late, later, gone = door.come(3)
    gone.close()
    assert [late.is_reading, later.is_reading] == [False, False]
    door.scheduler.pass_ms(200)
    assert door.serves(late)
    assert not later.is_reading
    door.scheduler.pass_ms(200)
    assert door.serves(later)
    assert door.node.traffic.connections == 52
    door.scheduler.pass_ms(200)
    assert door.node.traffic.connections == 52


@pytest.mark.parametrize("name", ["", "1"])
def test_a_limit_of_an_address_that_is_altered_holds_for_whoever_comes_next(name):
    door = Door()
    present = door.come(3)
    door.node.cluster.set_config(BROKER, name, "max.connections.per.ip", "3")
    (refused,) = door.come()
    assert refused.is_closed
    assert all(map(door.serves, present)), "who is there already stays"
    door.node.cluster.set_config(BROKER, name, "max.connections.per.ip", "4")
    assert all(map(door.serves, door.come()))


@pytest.mark.parametrize("name", ["", "1"])
def test_who_comes_to_a_full_broker_waits_until_there_is_room(name):
    door = Door()
    first, second = door.come(2)
    door.node.cluster.set_config(BROKER, name, "max.connections", "2")
    late, gone, later = door.come(3)
    assert not any(transport.is_reading or transport.is_closed for transport in (late, later))
    gone.close()
    first.close()
    assert door.serves(late)
    assert not later.is_reading
    door.node.cluster.set_config(BROKER, name, "max.connections", "3")
    door.node.look_for_room()
    assert door.serves(later)
    assert door.serves(second)
    assert door.node.traffic.connections == 3


def test_who_waits_for_room_has_waited_for_its_turn_before():
    door = Door()
    door.node.cluster.set_config(BROKER, "", "max.connection.creation.rate", "5")
    first, *_ = door.come(50)
    door.node.cluster.set_config(BROKER, "", "max.connections", "50")
    (late,) = door.come()
    first.close()
    assert not late.is_reading, "there is room, but it is not its turn"
    door.scheduler.pass_ms(200)
    assert door.serves(late)
