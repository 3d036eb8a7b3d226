"""How many connections there may be, altered while brokers run: the same on the embedded broker and on Apache Kafka."""

from contextlib import ExitStack

import pytest

from kclient_quota.broker import EmbeddedBroker
from kclient_quota.testing.apache import ApacheKafka
from kclient_quota.wire import messages as m
from tests.contract.administered import eventually
from tests.contract.wire_client import ask, connected
from tests.required import require_apache_kafka

pytestmark = pytest.mark.timeout(120)
BROKER, SET, DELETE = 4, 0, 1
INVALID_REQUEST = 42
ALL, PER_ADDRESS = "max.connections", "max.connections.per.ip"
CLOSED, WAITS, SERVED = "closed", "waits", "served"


@pytest.fixture(scope="module", params=["embedded", "apache-kafka"])
def cluster(request):
    """One of its own: others' connections would be closed. Apache Kafka's network threads each look for the idlest."""
    if request.param == "embedded":
        with EmbeddedBroker() as running:
            yield running
        return
    require_apache_kafka()
    with ApacheKafka(properties={"num.network.threads": "1"}) as running:
        yield running


def alter(wire, name, **values):
    configs = [
        m.IncrementalAlterConfigsRequest.AlterableConfig(
            name=key, config_operation=DELETE if value is None else SET, value=value
        )
        for key, value in values.items()
    ]
    resource = m.IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=BROKER, resource_name=name, configs=configs
    )
    (result,) = ask(wire, m.IncrementalAlterConfigsRequest(resources=[resource]), 1).responses
    return result.error_code


def described(wire, name):
    resource = m.DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=BROKER, resource_name=name, configuration_keys=None
    )
    (result,) = ask(wire, m.DescribeConfigsRequest(resources=[resource]), 4).results
    assert result.error_code == 0, result.error_message
    return {config.name: config.value for config in result.configs}


def state(wire):
    """Whether a connection is served within a moment."""
    wire._connection.settimeout(0.5)
    try:
        ask(wire, m.ListGroupsRequest(), 4)
    except TimeoutError:
        return WAITS
    except (AssertionError, OSError):
        return CLOSED
    return SERVED


@pytest.mark.parametrize("name", ["", "1"])
def test_both_are_altered_beside_another_key(cluster, name):
    wanted = {ALL: "500", PER_ADDRESS: "400", "log.retention.ms": "123456"}
    with connected(cluster) as wire:
        assert alter(wire, name, **wanted) == 0
        eventually(lambda: described(wire, name), lambda told: {key: told.get(key) for key in wanted} == wanted)
        assert alter(wire, name, **{ALL: "-1"}) == INVALID_REQUEST
        assert alter(wire, name, **{ALL: "x"}) == INVALID_REQUEST
        assert alter(wire, name, **{PER_ADDRESS: "0"}) == INVALID_REQUEST
        assert alter(wire, name, **dict.fromkeys(wanted)) == 0


@pytest.mark.parametrize("name", ["", "1"])
def test_fewer_of_an_address_are_those_that_are_there_and_no_other(cluster, name):
    with ExitStack() as stack:
        wires = [stack.enter_context(connected(cluster)) for _ in range(4)]
        assert [state(wire) for wire in wires] == [SERVED] * 4
        assert alter(wires[0], name, **{PER_ADDRESS: "2"}) == 0

        def newcomer():
            with connected(cluster) as wire:
                return state(wire)

        eventually(newcomer, lambda found: found == CLOSED)
        assert [state(wire) for wire in wires] == [SERVED] * 4
        assert alter(wires[0], name, **{PER_ADDRESS: None}) == 0
        eventually(newcomer, lambda found: found == SERVED)


@pytest.mark.parametrize("name", ["", "1"])
def test_fewer_at_all_are_those_heard_of_last_and_others_wait(cluster, name):
    with ExitStack() as stack:
        wires = [stack.enter_context(connected(cluster)) for _ in range(5)]
        assert [state(wire) for wire in wires] == [SERVED] * 5
        assert alter(wires[4], name, **{ALL: "2"}) == 0
        for wire in wires[:3]:
            wire._connection.settimeout(30)
            assert wire._connection.recv(1) == b"", "closed; who asks it something is heard of again"
        assert [state(wire) for wire in wires[3:]] == [SERVED] * 2
        late, later = (stack.enter_context(connected(cluster)) for _ in range(2))
        assert [state(late), state(later)] == [WAITS, WAITS]
        wires[3]._connection.close()
        late._connection.settimeout(30)
        late.receive(m.ListGroupsResponse, 4)
        assert state(late) == SERVED
        assert alter(wires[4], name, **{ALL: None}) == 0
        later._connection.settimeout(30)
        later.receive(m.ListGroupsResponse, 4)
        assert [state(late), state(later), state(wires[4])] == [SERVED] * 3
