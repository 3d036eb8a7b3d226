"""What members ask a group coordinator and what they are told: plain values, no wire objects."""

from dataclasses import dataclass

from kclient_quota.broker.groups.classic.group import Protocols
from kclient_quota.wire.error_codes import ErrorCode


@dataclass(frozen=True, slots=True)
class Join:
    """What a JoinGroup request says.

    Attributes:
        requires_known_member_id: version 4 and above: an unknown member is given its id first (KIP-394).
        supports_skipping_assignment: version 9 and above (KIP-814).
    """

    group_id: str
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    requires_known_member_id: bool = True
    supports_skipping_assignment: bool = True


@dataclass(frozen=True, slots=True)
class JoinedMember:
    """A member as the leader is told of it."""

    member_id: str
    group_instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True)
class JoinResult:
    """What a JoinGroup response says."""

    error: ErrorCode
    member_id: str
    generation_id: int = -1
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = ""
    skip_assignment: bool = False
    members: tuple[JoinedMember, ...] = ()


@dataclass(frozen=True, slots=True)
class Sync:
    """What a SyncGroup request says; protocol type and name are None before version 5."""

    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignments: tuple[tuple[str, bytes], ...] = ()


@dataclass(frozen=True, slots=True)
class SyncResult:
    """What a SyncGroup response says."""

    error: ErrorCode
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


@dataclass(frozen=True, slots=True)
class Leaver:
    """One member named in a LeaveGroup request."""

    member_id: str
    group_instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class Pending:
    """The answer comes later, in a `Completion` with the same ticket."""

    ticket: int


@dataclass(frozen=True, slots=True)
class Completion:
    """The answer to a request that had to wait."""

    ticket: int
    result: JoinResult | SyncResult
