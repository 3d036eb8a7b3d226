"""Which answers wait until the disk itself has what they tell of, where `fsync` promises that.

All do but those of requests that change nothing that is kept: these are given what memory has. Of records readers see
what the disk has anyway (`PartitionLog.high_watermark`).
"""

from typing import Final

from kclient_quota.broker.cluster_state import ClusterState

_CHANGE_NOTHING: Final = frozenset(
    {
        *(1, 2, 3, 23),  # Fetch, ListOffsets, Metadata, OffsetForLeaderEpoch
        *(9, 10, 11, 12, 13, 14, 68, 76),  # OffsetFetch, FindCoordinator, members of groups
        *(17, 18, 36, 71, 72),  # SaslHandshake, ApiVersions, SaslAuthenticate, telemetry
        *(15, 16, 69, 77, 90),  # descriptions of groups
        *(29, 32, 35, 46, 48, 50, 55, 60, 61, 65, 66, 74, 75),  # and of all else
    }
)


def waits(cluster: ClusterState, api_key: int) -> bool:
    """Whether an answer of this API waits for the disk itself."""
    return cluster.on_disk is not None and api_key not in _CHANGE_NOTHING


async def on_disk(cluster: ClusterState) -> None:
    """Wait until the disk itself has all that has been written, where that is wanted.

    Raises:
        OSError: it has refused.
    """
    error = None if cluster.on_disk is None else await cluster.on_disk()
    if error is not None:
        raise error
