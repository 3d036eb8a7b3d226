"""Users' SCRAM credentials.

DescribeUserScramCredentials (50) v0 · AlterUserScramCredentials (51) v0. KIP-554.

Behaviour: rules and messages as in Kafka's `ScramControlManager` and `ScramImage`; what is set holds at the next
handshake and is kept in `data_dir`. Users who were given with a password have both credentials from the start; to
delete one leaves them PLAIN and the other.
Gaps: none known.
"""

from collections import Counter

from kclient_quota.broker.cluster_state import ClusterState
from kclient_quota.broker.request.context import Context
from kclient_quota.broker.request.registry import handler
from kclient_quota.broker.security.sasl_mechanisms import SCRAM_ITERATIONS
from kclient_quota.broker.security.scram_credentials import (
    MAX_ITERATIONS,
    MECHANISMS,
    MIN_ITERATIONS,
    ScramCredential,
    credential,
)
from kclient_quota.wire.error_codes import ErrorCode
from kclient_quota.wire.messages import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)

Described = DescribeUserScramCredentialsResponse.DescribeUserScramCredentialsResult
Problem = tuple[ErrorCode, str | None]
_FINE: Problem = (ErrorCode.NONE, None)


def _iterations(cluster: ClusterState, user: str, mechanism: int) -> int | None:
    """Of a user's credential, or None when there is none."""
    kept = cluster.scram.get((user, mechanism), cluster.users.get(user))
    if kept is None:
        return None
    return kept.iterations if isinstance(kept, ScramCredential) else SCRAM_ITERATIONS


@handler(DescribeUserScramCredentialsRequest, min_version=0, max_version=0)
async def describe_user_scram_credentials(
    context: Context, request: DescribeUserScramCredentialsRequest
) -> DescribeUserScramCredentialsResponse:
    """Mechanisms and iterations of some users, or of all who have any."""
    cluster = context.cluster
    asked = Counter(user.name for user in request.users or ())
    everybody = sorted({*cluster.users, *(user for user, _ in cluster.scram)})
    results = [_described(cluster, name, asked) for name in asked or everybody]
    if not asked:
        results = [result for result in results if not result.error_code]
    return DescribeUserScramCredentialsResponse(error_code=0, error_message=None, results=results)


def _described(cluster: ClusterState, user: str, asked: Counter[str]) -> Described:
    if asked[user] > 1:
        message = f"Cannot describe SCRAM credentials for the same user twice in a single request: {user}"
        return Described(user=user, error_code=ErrorCode.DUPLICATE_RESOURCE, error_message=message)
    infos = [
        DescribeUserScramCredentialsResponse.CredentialInfo(mechanism=mechanism, iterations=iterations)
        for mechanism in MECHANISMS
        if (iterations := _iterations(cluster, user, mechanism)) is not None
    ]
    if not infos:
        message = f"Attempt to describe a user credential that does not exist: {user}"
        return Described(user=user, error_code=ErrorCode.RESOURCE_NOT_FOUND, error_message=message)
    return Described(user=user, error_code=0, error_message=None, credential_infos=infos)


@handler(AlterUserScramCredentialsRequest, min_version=0, max_version=0)
async def alter_user_scram_credentials(
    context: Context, request: AlterUserScramCredentialsRequest
) -> AlterUserScramCredentialsResponse:
    """Set and delete credentials, all of a user's or none."""
    cluster = context.cluster
    times = Counter(change.name for change in request.upsertions)
    times.update(change.name for change in request.deletions)
    problems: dict[str, Problem] = {}
    for deletion in request.deletions:
        _note(problems, deletion.name, _deletion_problem(cluster, deletion))
    for upsertion in request.upsertions:
        _note(problems, upsertion.name, _upsertion_problem(upsertion))
    for user, count in times.items():
        if count > 1:
            message = "A user credential cannot be altered twice in the same request"
            _note(problems, user, (ErrorCode.DUPLICATE_RESOURCE, message))
    for deletion in request.deletions:
        if not problems[deletion.name][0]:
            _set(cluster, (deletion.name, deletion.mechanism), None)
    for upsertion in request.upsertions:
        if not problems[upsertion.name][0]:
            made = credential(
                upsertion.mechanism, bytes(upsertion.salt), bytes(upsertion.salted_password), upsertion.iterations
            )
            _set(cluster, (upsertion.name, upsertion.mechanism), made)
    return AlterUserScramCredentialsResponse(
        results=[
            AlterUserScramCredentialsResponse.AlterUserScramCredentialsResult(
                user=user, error_code=error, error_message=message
            )
            for user, (error, message) in problems.items()
        ]
    )


def _note(problems: dict[str, Problem], user: str, problem: Problem) -> None:
    """A user's first problem decides."""
    if not problems.get(user, _FINE)[0]:
        problems[user] = problem


def _deletion_problem(
    cluster: ClusterState, deletion: AlterUserScramCredentialsRequest.ScramCredentialDeletion
) -> Problem:
    if not deletion.name:
        return ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty"
    if deletion.mechanism not in MECHANISMS:
        return ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism"
    if _iterations(cluster, deletion.name, deletion.mechanism) is None:
        return ErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist"
    return _FINE


def _upsertion_problem(upsertion: AlterUserScramCredentialsRequest.ScramCredentialUpsertion) -> Problem:
    if not upsertion.name:
        return ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty"
    if upsertion.mechanism not in MECHANISMS:
        return ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism"
    if upsertion.iterations < MIN_ITERATIONS:
        return ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations"
    if upsertion.iterations > MAX_ITERATIONS:
        return ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations"
    return _FINE


def _set(cluster: ClusterState, key: tuple[str, int], value: ScramCredential | None) -> None:
    if value is None and key[0] not in cluster.users:
        del cluster.scram[key]
    else:
        # None hides what follows from a password that was given
        cluster.scram[key] = value
    cluster.changed("scram", *key)
