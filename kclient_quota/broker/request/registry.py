"""Who answers which API, in which versions. What is registered is what ApiVersions advertises.

A handler is a coroutine in a file of its API family in `kclient_quota.broker.handlers`; the file opens with a card
(keys, versions, KIPs, behaviour, what each version changed, gaps) and is found by itself, nothing else needs an edit:

    @handler(ProduceRequest, min_version=3, max_version=11)
    async def produce(context: Context, request: ProduceRequest) -> ProduceResponse | None: ...

It returns the response (None: no response is sent, acks=0) with `throttle_time_ms` left at 0: quotas are enforced
around it. It awaits nothing but `kclient_quota.broker.request.promise.Promise`; time is `context.now_ms` (epoch ms at
the start of the request) and `context.scheduler.call_at(deadline_ms, callback)`; what it must undo when the client goes
away stands in `finally`.

`context` (`kclient_quota.broker.request.context.Context`) has
    .broker          this node: .id, .host, .ports, .is_up
    .cluster         ClusterState: .brokers, .topics, .configs, .quotas, .users, ...; partitions hold their logs
    .connection      state of the connection for as long as it lasts: .principal, .is_authenticated, .sasl,
                     .close_after_response, all writable (SASL)
    .principal       user name, "ANONYMOUS" unless authenticated
    .client_id       as in the request header; None when null
    .client_address  the client's IP address
    .services        .get(GroupService): the cluster's one GroupService(cluster, scheduler), made at its first use
    .may(AclOperation.READ, ResourceType.TOPIC, name)
                     whether the client may; most APIs need not ask, see `request.authorization`
    .mutations       .record(partitions, now_ms): whether the quota of KIP-599 lets so many be created or deleted
    .api_key, .api_version, .now_ms, .scheduler
"""

from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from kclient_quota.broker.manners import ThrottleManner
from kclient_quota.broker.request.context import Context
from kclient_quota.wire.messages import ApiVersionsResponse
from kclient_quota.wire.schema import Request, Response

RequestT = TypeVar("RequestT", bound=Request)

Handler = Callable[[Context, Any], Coroutine[Any, Any, Response | None]]


@dataclass(frozen=True, slots=True)
class Registration:
    """One API that this broker answers.

    Attributes:
        api_key: Kafka's number.
        request: class of the request.
        min_version: oldest version answered.
        max_version: newest version answered.
        call: the coroutine function.
        before_authentication: whether a client may send it before it has authenticated.
    """

    api_key: int
    request: type[Request]
    min_version: int
    max_version: int
    call: Handler
    before_authentication: bool = False


Registry = Mapping[int, Registration]

REGISTRY: dict[int, Registration] = {}
"""By API key; filled by importing `kclient_quota.broker.handlers`."""


def handler(
    request: type[RequestT],
    *,
    min_version: int,
    max_version: int,
    before_authentication: bool = False,
) -> Callable[
    [Callable[[Context, RequestT], Coroutine[Any, Any, Response | None]]],
    Callable[[Context, RequestT], Coroutine[Any, Any, Response | None]],
]:
    """Register the decorated coroutine for one API; the module's docstring says what it is given.

    Raises:
        ValueError: the API has a handler already, or the codec does not speak these versions.
    """
    schema = request.__schema__
    if not min_version <= max_version or {min_version, max_version} - set(schema.valid_versions):
        raise ValueError(
            f"{schema.name}: versions {min_version}-{max_version} are not all among {schema.valid_versions}"
        )

    def register(
        call: Callable[[Context, RequestT], Coroutine[Any, Any, Response | None]],
    ) -> Callable[[Context, RequestT], Coroutine[Any, Any, Response | None]]:
        if schema.api_key in REGISTRY:
            raise ValueError(f"{schema.name} has a handler already; one API, one handler")
        REGISTRY[schema.api_key] = Registration(
            schema.api_key, request, min_version, max_version, call, before_authentication
        )
        return call

    return register


def advertised(registry: Registry, manner: ThrottleManner) -> list[ApiVersionsResponse.ApiVersion]:
    """Every registered API that brokers of this manner have, with its versions."""
    return [
        ApiVersionsResponse.ApiVersion(api_key=key, min_version=entry.min_version, max_version=entry.max_version)
        for key, entry in sorted(registry.items())
        if key not in manner.absent
    ]
