"""Features of a cluster (KIP-584): which levels it knows, and which are finalized.

Names and levels are Apache Kafka 4.3.1's. `transaction.version` 2 is KIP-890's second part; a client that is told so
leaves out AddPartitionsToTxn. A feature whose APIs are not served here is level 0, which is as good as absent.
"""

from collections.abc import Container, Mapping
from typing import Final, NamedTuple

UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3
"""Kafka's `FeatureUpdate.UpgradeType` ids."""
_SHARE_GROUP_HEARTBEAT: Final = 76
_SHARE_VERSION: Final = "share.version"
ELIGIBLE_REPLICAS: Final = "eligible.leader.replicas.version"
METADATA_VERSION: Final = "metadata.version"


class Levels(NamedTuple):
    """Lowest and highest level that is known, and the one that a new cluster has."""

    least: int
    most: int
    default: int


SUPPORTED: Final[Mapping[str, Levels]] = {
    ELIGIBLE_REPLICAS: Levels(0, 1, 1),
    "group.version": Levels(0, 1, 1),
    "kraft.version": Levels(0, 1, 0),
    METADATA_VERSION: Levels(7, 30, 30),
    _SHARE_VERSION: Levels(0, 1, 1),
    "transaction.version": Levels(0, 2, 2),
}
"""By name."""


def supported(api_keys: Container[int]) -> Mapping[str, Levels]:
    """The features of brokers that serve these APIs."""
    if _SHARE_GROUP_HEARTBEAT in api_keys:
        return SUPPORTED
    return {name: levels for name, levels in SUPPORTED.items() if name != _SHARE_VERSION}


def level(altered: Mapping[str, int], name: str) -> int:
    """The finalized level of a feature; 0 where it has none."""
    return altered.get(name, SUPPORTED[name].default)


def update_problem(known: Levels | None, present: int, name: str, wanted: int, upgrade_type: int) -> str | None:
    """Why a feature cannot be given a level, or None (Kafka's `FeatureControlManager`)."""
    if known is None:
        return f"Invalid update version {wanted} for feature {name}. This cluster does not support this feature."
    if upgrade_type not in {UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE}:
        return f"Invalid upgrade type {upgrade_type} for feature {name}."
    if wanted < 0 or not known.least <= wanted <= known.most:
        return (
            f"Invalid update version {wanted} for feature {name}. Supported are versions {known.least} to {known.most}."
        )
    if wanted < present and upgrade_type == UPGRADE:
        return (
            f"Invalid update version {wanted} for feature {name}. Can't downgrade the version of this feature without "
            "setting the upgrade type to either safe or unsafe downgrade."
        )
    if wanted > present and upgrade_type != UPGRADE:
        return (
            f"Invalid update version {wanted} for feature {name}. Can't downgrade to a newer version: it is {present}."
        )
    return None
