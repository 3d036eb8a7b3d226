"""The pure cores in virtual time: client pacing, broker quota managers and a network between them."""

from kclient_quota.simulation.model import Change, Network, Scenario
from kclient_quota.simulation.parts import Part, parts
from kclient_quota.simulation.rates import Figures, Settling, figures
from kclient_quota.simulation.world import Outcome, Randomness, simulate

__all__ = [
    "Change",
    "Figures",
    "Network",
    "Outcome",
    "Part",
    "Randomness",
    "Scenario",
    "Settling",
    "figures",
    "parts",
    "simulate",
]
