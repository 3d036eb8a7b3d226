"""What a handler is told about the request's surroundings, and what it may call."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

from kclient_quota.broker.cluster_state import BrokerInfo, ClusterState
from kclient_quota.broker.request.promise import Turn
from kclient_quota.quota.token_bucket import ControllerMutationQuota
from kclient_quota.wire.messages import FetchResponse

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from kclient_quota.broker.request.registry import Registry
    from kclient_quota.wire.schema import Response

ANONYMOUS = "ANONYMOUS"
"""Kafka's user name of whoever has not authenticated."""

AT_ONCE = 250
"""How many of a request's topics, partitions or names are seen to in one turn: each takes up to 50 µs."""

ELEMENTS_AT_ONCE = 1_000
"""How many elements of a message are read or written in one turn, which takes less."""

ServiceT = TypeVar("ServiceT")
AskedT = TypeVar("AskedT")
MadeT = TypeVar("MadeT")


class Cancellable(Protocol):
    """A call that was asked for and may be called off."""

    def cancel(self) -> None:
        """Do not make the call; nothing if it was made already."""
        ...


class Scheduler(Protocol):
    """The broker's time."""

    def now_ms(self) -> int:
        """Milliseconds since 1970, never going backwards."""
        ...

    def date_ms(self) -> int:
        """What records and tokens are dated by: where a machine has slept, `now_ms` is behind for good."""
        ...

    def call_at(self, deadline_ms: int, callback: Callable[[], None]) -> Cancellable:
        """Call back once `now_ms` has reached `deadline_ms`, never from within this call."""
        ...


class Alarm:
    """Calls back at the earliest of the deadlines that it was told of.

    Args:
        scheduler: time.
        ring: what to call; nothing is set any more then.
    """

    def __init__(self, scheduler: Scheduler, ring: Callable[[], None]) -> None:
        self._scheduler = scheduler
        self._ring = ring
        self._set: tuple[int, Cancellable] | None = None

    def set(self, *deadlines_ms: int | None) -> None:
        """Ring at the earliest of these, if it is not to ring sooner; None: there is none."""
        deadline_ms = min((deadline for deadline in deadlines_ms if deadline is not None), default=None)
        if deadline_ms is None or (self._set is not None and self._set[0] <= deadline_ms):
            return
        if self._set is not None:
            self._set[1].cancel()
        self._set = deadline_ms, self._scheduler.call_at(deadline_ms, self._fire)

    def _fire(self) -> None:
        self._set = None
        self._ring()


@dataclass(slots=True, eq=False)
class ConnectionState:
    """What is known of a client's connection for as long as it lasts; handlers may write to it.

    Attributes:
        listener: name of the listener it came in by.
        client_address: the client's IP address.
        client_port: the client's TCP port.
        principal: user name; quotas of users go by it.
        is_authenticated: False until SASL has succeeded, on listeners that ask for it.
        sasl: the exchange under way, whatever the SASL handlers keep there.
        session_ends_ms: when the client has to have authenticated again (KIP-368), or None.
        client_id: as in its last request.
        client_software: name and version the client gave in ApiVersions.
        close_after_response: the connection is closed once the response has been written.
        held_until_ms: by API, until when the next response is held back (brokers with `Delay.NEXT`).
        on_close: called when the connection is gone.
    """

    listener: str
    client_address: str
    principal: str = ANONYMOUS
    is_authenticated: bool = True
    sasl: Any = None
    session_ends_ms: int | None = None
    client_id: str | None = None
    client_software: tuple[str, str] = ("unknown", "unknown")
    close_after_response: bool = False
    held_until_ms: dict[int, int] = field(default_factory=dict)
    client_port: int = 0
    on_close: list[Callable[[], None]] = field(default_factory=list)


@dataclass(slots=True)
class Services:
    """Objects of which a cluster has one each, made at their first use.

    Attributes:
        cluster: given to each.
        scheduler: given to each.
    """

    cluster: ClusterState
    scheduler: Scheduler
    _made: dict[type, object] = field(default_factory=dict)

    def get(self, cls: Callable[[ClusterState, Scheduler], ServiceT]) -> ServiceT:
        """The cluster's one `cls(cluster, scheduler)`."""
        key = cast("type[ServiceT]", cls)
        found = self._made.get(key)
        if found is None:
            found = self._made[key] = cls(self.cluster, self.scheduler)
        return cast("ServiceT", found)


@dataclass(slots=True, eq=False)
class Context:
    """One request's surroundings; `kclient_quota.broker.request.registry` lists them for authors of handlers.

    Attributes:
        broker: the node that was asked.
        cluster: state shared by all nodes.
        connection: see `ConnectionState`.
        services: the cluster's other objects, `context.services.get(GroupService)`.
        scheduler: time and timers.
        mutations: what the request may create and delete (KIP-599): `record(partitions, now_ms)` says False when it
            must be answered with THROTTLING_QUOTA_EXCEEDED.
        api_key: Kafka's number of the API.
        api_version: version the client speaks.
        client_id: as in the request header; None when null.
        registry: every API that this broker answers.
        now_ms: milliseconds since 1970 when the request was taken up.
        emptied: makes the answer of a fetch that a quota empties.
        seen_to: of the request's topics, partitions or names since others had their turn.
        turns: how often others have had their turn since the request was taken up.
    """

    broker: BrokerInfo
    cluster: ClusterState
    connection: ConnectionState
    services: Services
    scheduler: Scheduler
    mutations: ControllerMutationQuota
    api_key: int
    api_version: int
    client_id: str | None
    registry: "Registry"
    now_ms: int
    emptied: "Callable[[], Response]" = FetchResponse
    seen_to: int = 0
    turns: int = 0

    @property
    def principal(self) -> str:
        """The user's name, "ANONYMOUS" unless authenticated."""
        return self.connection.principal

    def may(self, operation: int, resource_type: int, name: str) -> bool:
        """Whether the client may do this to a resource (`AclOperation`, `ResourceType`); everybody may, unguarded."""
        authorizer = self.cluster.authorizer
        if not authorizer.is_enabled:
            return True
        return authorizer.may(f"User:{self.principal}", self.client_address, operation, resource_type, name)

    def may_somewhere(self, operation: int, resource_type: int) -> bool:
        """Whether the client may do this to any resource of a type."""
        authorizer = self.cluster.authorizer
        return authorizer.may_somewhere(f"User:{self.principal}", self.client_address, operation, resource_type)

    async def in_turns(self, asked: "Sequence[AskedT]", make: Callable[[AskedT], MadeT]) -> list[MadeT]:
        """What `make` makes of each; of many in turns with whatever else there is to do.

        Calls count together, so that many lists of one are as many as one long one. A request that is long
        enough for this lies in a buffer of its own, a shorter one is answered before its buffer is used again.
        """
        found: list[MadeT] = []
        for start in range(0, len(asked), AT_ONCE):
            part = asked[start : start + AT_ONCE]
            await self.turn_after(len(part))
            found += map(make, part)
        return found

    async def turn_after(self, count: int = 1) -> None:
        """Say that so many things are seen to next: after every `AT_ONCE` others have their turn."""
        if self.seen_to and self.seen_to + count > AT_ONCE:
            self.seen_to = 0
            await self.others_turn()
        self.seen_to += count

    async def turn_for(self, count: int) -> None:
        """Say that so many things are seen to at once next: if they are many, in a turn of their own."""
        if count > AT_ONCE:
            self.seen_to = 0
            await self.others_turn()

    async def others_turn(self) -> None:
        """Let whatever else there is to do on the loop be done before this goes on.

        What this has changed so far is kept before: who saves next would undo it when the disk is full, and this would
        not hear of that.

        Raises:
            OSError: it could not be kept, and has been undone.
        """
        if self.cluster.changes:
            self.cluster.save()
        await self.later()

    async def later(self) -> None:
        """The same for what comes after the answer, which changes nothing."""
        promise = Turn()
        self.scheduler.call_at(self.scheduler.now_ms(), lambda: promise.resolve(None))
        await promise
        self.turns += 1

    async def by_and_by(self, steps: "Generator[None, None, MadeT]") -> MadeT:
        """What comes of steps; between them others have their turn."""
        while True:
            try:
                next(steps)
            except StopIteration as end:
                made: MadeT = end.value
                return made
            await self.others_turn()

    def asked_anew(self, ask: Callable[[], MadeT]) -> Callable[[], MadeT]:
        """What `ask` says, which is asked again whenever others have had their turn: it may have changed."""
        turns, answer = self.turns, ask()

        def ask_if_old() -> MadeT:
            nonlocal turns, answer
            if turns != self.turns:
                turns, answer = self.turns, ask()
            return answer

        return ask_if_old

    @property
    def client_address(self) -> str:
        """The client's IP address."""
        return self.connection.client_address
