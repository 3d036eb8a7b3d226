"""ConsumerGroupHeartbeat as values, and what is refused before a group is looked at."""

from dataclasses import dataclass

from kclient_quota.broker.groups.assignors import ASSIGNORS, Assignment
from kclient_quota.broker.groups.consumer.group import JOIN_EPOCH, LEAVE_STATIC_EPOCH, ConsumerMember
from kclient_quota.broker.groups.consumer.topic_pattern import topic_pattern
from kclient_quota.wire.error_codes import ErrorCode


@dataclass(frozen=True, slots=True)
class Beat:
    """What a ConsumerGroupHeartbeat request says; None stands for "as before".

    Attributes:
        owned: partitions the member has.
    """

    group_id: str
    member_id: str
    member_epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    client_id: str = ""
    client_host: str = ""
    topics: frozenset[str] | None = None
    regex: str | None = None
    assignor: str | None = None
    owned: Assignment | None = None

    @property
    def is_full(self) -> bool:
        """Whether it says everything, so that the answer has to as well."""
        joins = self.member_epoch == JOIN_EPOCH
        return joins or (self.rebalance_timeout_ms != -1 and self.topics is not None and self.owned is not None)


@dataclass(frozen=True, slots=True)
class BeatResult:
    """What a ConsumerGroupHeartbeat response says; `assigned` is None when it has not changed."""

    error: ErrorCode
    message: str | None = None
    member_id: str | None = None
    member_epoch: int = 0
    assigned: Assignment | None = None


class Refused(Exception):  # noqa: N818 - not an error of the program: the answer to the client
    """Why a request is not done, as the answer that says so."""

    def __init__(self, error: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.result = BeatResult(error, message)


def validate(beat: Beat) -> None:
    """What is wrong with a request by itself.

    Raises:
        Refused: something is.
    """
    for name, value in (("GroupId", beat.group_id), ("InstanceId", beat.instance_id), ("RackId", beat.rack_id)):
        if value is not None and not value.strip():
            raise Refused(ErrorCode.INVALID_REQUEST, f"{name} can't be empty.")
    if beat.member_epoch == JOIN_EPOCH:
        _validate_join(beat)
    elif not beat.member_id.strip():
        raise Refused(ErrorCode.INVALID_REQUEST, "MemberId can't be empty.")
    elif beat.member_epoch == LEAVE_STATIC_EPOCH and beat.instance_id is None:
        raise Refused(ErrorCode.INVALID_REQUEST, "InstanceId can't be null.")
    elif beat.member_epoch < LEAVE_STATIC_EPOCH:
        raise Refused(ErrorCode.INVALID_REQUEST, "MemberEpoch is invalid.")
    if beat.assignor is not None and beat.assignor not in ASSIGNORS:
        known = ", ".join(ASSIGNORS)
        message = f"ServerAssignor {beat.assignor} is not supported. Supported assignors: {known}."
        raise Refused(ErrorCode.UNSUPPORTED_ASSIGNOR, message)
    if beat.regex:
        try:
            topic_pattern(beat.regex)
        except ValueError as error:
            message = f"SubscribedTopicRegex `{beat.regex}` is not a valid regular expression: {error}."
            raise Refused(ErrorCode.INVALID_REGULAR_EXPRESSION, message) from None


def _validate_join(beat: Beat) -> None:
    if beat.rebalance_timeout_ms == -1:
        raise Refused(ErrorCode.INVALID_REQUEST, "RebalanceTimeoutMs must be provided in first request.")
    if beat.owned is None or beat.owned:
        raise Refused(ErrorCode.INVALID_REQUEST, "TopicPartitions must be empty when (re-)joining.")
    if not beat.topics and not beat.regex:
        raise Refused(
            ErrorCode.INVALID_REQUEST,
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.",
        )


def check_epoch(member: ConsumerMember, beat: Beat) -> ConsumerMember:
    """The member, if the request names its epoch, or repeats what came of the last.

    Raises:
        Refused: it does not.
    """
    received, epoch = beat.member_epoch, member.member_epoch
    repeats = received == member.previous_epoch and beat.owned is not None and beat.owned <= member.assigned
    if received > epoch or (received < epoch and not repeats):
        size = "greater" if received > epoch else "smaller"
        raise Refused(
            ErrorCode.FENCED_MEMBER_EPOCH,
            f"The consumer group member has a {size} member epoch ({received}) than the one known by the group "
            f"coordinator ({epoch}). The member must abandon all its partitions and rejoin.",
        )
    return member
