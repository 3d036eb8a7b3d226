"""Play one part of a scenario."""

from kclient_quota.simulation.consumers import ConsumerWorld
from kclient_quota.simulation.model import Scenario
from kclient_quota.simulation.outcome import Outcome, Randomness
from kclient_quota.simulation.parts import Part
from kclient_quota.simulation.producers import ProducerWorld


def simulate(scenario: Scenario, part: Part, randomness: Randomness) -> Outcome:
    """Play one part of a scenario; the same generator in the same state gives the same outcome.

    Args:
        scenario: what to simulate.
        part: one of `parts(scenario)`.
        randomness: `random.Random(seed)`, or anything like it.
    """
    world = ConsumerWorld if scenario.consume else ProducerWorld
    return world(scenario, part, randomness).run()
