"""A scenario cut into parts that have nothing to do with each other: brokers that share no client."""

from typing import NamedTuple

from kclient_quota.simulation.model import Scenario


class Part(NamedTuple):
    """Brokers and the clients that use them, and no others."""

    brokers: tuple[int, ...]
    clients: tuple[int, ...]


def parts(scenario: Scenario) -> list[Part]:
    """The parts of a scenario, in the order of their lowest broker; brokers that nobody uses are left out."""
    root = list(range(scenario.brokers))

    def find(broker: int) -> int:
        while root[broker] != broker:
            root[broker] = root[root[broker]]
            broker = root[broker]
        return broker

    for first, *others in scenario.leaders[: scenario.total_clients]:
        for broker in others:
            low, high = sorted((find(first), find(broker)))
            root[high] = low
    members: dict[int, list[int]] = {}
    for client in range(scenario.total_clients):
        members.setdefault(find(scenario.partitions(client)[0]), []).append(client)
    used = {broker for client in range(scenario.total_clients) for broker in scenario.partitions(client)}
    return [
        Part(tuple(broker for broker in sorted(used) if find(broker) == part), tuple(clients))
        for part, clients in sorted(members.items())
    ]
