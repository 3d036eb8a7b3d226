"""The pure cores in virtual time: client pacing, broker quota managers and a network between them."""

from kclient_quota.simulation.model import Change, Kind, Network, Scenario
from kclient_quota.simulation.outcome import Delivery, Outcome, Randomness, Throttles
from kclient_quota.simulation.parts import Part, parts
from kclient_quota.simulation.play import simulate
from kclient_quota.simulation.rates import DeliveryFigures, Figures, KindFigures, Settling, figures

__all__ = [
    "Change",
    "Delivery",
    "DeliveryFigures",
    "Figures",
    "Kind",
    "KindFigures",
    "Network",
    "Outcome",
    "Part",
    "Randomness",
    "Scenario",
    "Settling",
    "Throttles",
    "figures",
    "parts",
    "simulate",
]
