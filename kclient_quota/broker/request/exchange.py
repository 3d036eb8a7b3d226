"""One request on its way through a node: decoded, handled, held to quotas, answered."""

from collections.abc import Callable
from math import inf
from typing import TYPE_CHECKING

from kclient_telemetry import logger_of

from kclient_quota.broker.manners import Delay
from kclient_quota.broker.request.authorization import authorized
from kclient_quota.broker.request.context import ELEMENTS_AT_ONCE, ConnectionState, Context
from kclient_quota.broker.request.controls import Break, Intercepted, SeenRequest
from kclient_quota.broker.request.enforcement import Session, longer
from kclient_quota.broker.request.faults import Effect, Fault, Faults
from kclient_quota.broker.request.long import messages as long_messages
from kclient_quota.broker.request.long.letting_go import let_go
from kclient_quota.broker.request.node import Node
from kclient_quota.broker.request.on_disk import on_disk, waits
from kclient_quota.broker.request.outcome import Outcome
from kclient_quota.broker.request.promise import CalledOff, Drive
from kclient_quota.broker.request.registry import Registration
from kclient_quota.errors import WireError
from kclient_quota.quota.managers import Throttle
from kclient_quota.wire.codec import decode_few
from kclient_quota.wire.error_answer import error_answer
from kclient_quota.wire.error_codes import ErrorCode
from kclient_quota.wire.frame import RequestHeader, encode_response, response_header_version
from kclient_quota.wire.messages import (
    API,
    FetchRequest,
    FetchResponse,
    ProduceRequest,
    ProduceResponse,
    ShareFetchRequest,
    ShareFetchResponse,
)
from kclient_quota.wire.schema import Request, Response

if TYPE_CHECKING:
    from kclient_quota.wire.codec import Part

_LOG = logger_of(__name__)
_API_VERSIONS = 18
_COORDINATED = frozenset({8, 9, 11, 12, 13, 14, 24, 25, 26, 28, 42, 47, 68, 76, 91, 92})
"""APIs that a coordinator of groups or transactions answers."""
_LENGTH_AND_CORRELATION_ID = 8
_LENGTH_OF_RECORDS = 4


Done = Callable[[Outcome], None]


class Exchange:
    """One request on its way through a node.

    Args:
        node: the broker that was asked.
        connection: who asks.
        header: of the request.
        size: bytes of the request, header included.
        done: called once with the outcome.
    """

    __slots__ = (
        "_ahead_ms",
        "_busy_ns",
        "_connection",
        "_done",
        "_fault",
        "_header",
        "_is_too_late",
        "_manner",
        "_node",
        "_request",
        "_session",
        "_size",
        "_started_ns",
    )

    def __init__(self, node: Node, connection: ConnectionState, header: RequestHeader, size: int, done: Done) -> None:
        self._node = node
        self._connection = connection
        self._header = header
        self._size = size
        self._done = done
        self._session = Session(connection.principal, header.client_id)
        self._started_ns = node.enforcement.thread_ns()
        self._busy_ns = -1
        self._ahead_ms = 0
        self._is_too_late = False
        self._manner = node.cluster.manner
        self._request: Request | None = None
        self._fault: Fault | None = None

    def run(self, entry: Registration, frame: memoryview, position: int) -> Drive[None] | None:
        """Decode and handle it; what waits, or None when it has been answered."""
        try:
            request = decode_few(entry.request, self._header.api_version, frame, position, self._size, ELEMENTS_AT_ONCE)
        except WireError as error:
            self._refuse(error)
            return None
        # while it is read by and by the frame's buffer is used again
        work = self._work(entry, request, position, b"" if request is not None else bytes(frame[: self._size]))
        drive = Drive(work, lambda _: None, self._failed)
        if drive.is_finished:
            return None
        if self._busy_ns < 0:
            # what is charged ends where the waiting begins, as in Kafka
            self._busy_ns = self._elapsed_ns()
        return drive

    async def _work(self, entry: Registration, request: Request | None, position: int, frame: bytes) -> None:
        """Everything between the request and its answer; a request that is None is still to be read."""
        context = self._context()
        if request is None:
            try:
                request = await long_messages.read(
                    entry.request, self._header.api_version, frame, position, context.others_turn
                )
            except WireError as error:
                self._refuse(error)
                return
        self._request = request
        if not self._is_answered_before(context, request):
            self._answer(context, await self._handled(entry, context, request))
        if frame:
            held = [request]
            request = self._request = None
            for _ in let_go(held):
                await context.later()

    async def _handled(self, entry: Registration, context: Context, request: Request) -> Response | None:
        """What a handler answers, encoded if it is long, and kept where that has to be so before."""
        if isinstance(request, FetchRequest | ShareFetchRequest):
            self._before_fetch(request, context.now_ms)
        is_guarded = self._node.cluster.authorizer.is_enabled
        response = await (authorized(entry.call, context, request) if is_guarded else entry.call(context, request))
        if response is not None:
            await long_messages.written(response, self._header.api_version, context.others_turn)
        if response is not None and waits(self._node.cluster, self._header.api_key):
            # a change that is not kept is told by `_failed`, as is one that the disk refuses
            self._node.cluster.save()
            await on_disk(self._node.cluster)
        return response

    def _is_answered_before(self, context: Context, request: Request) -> bool:
        """Whether a test or a vendor's manner has answered it, so that no handler sees it."""
        if self._node.controls.is_armed and self._is_intercepted(request):
            return True
        faults = self._node.faults
        if faults is not None and faults.is_armed and self._is_struck(context, faults, request):
            return True
        return self._is_refused(request, context.now_ms)

    def _refuse(self, error: WireError) -> None:
        """What is no request ends the connection."""
        if self._node.may_complain(address := self._connection.client_address):
            _LOG.warning("broker %s: %s sent %s", self._node.info.id, address, error)
        self._done(Outcome(must_close=True))

    def _failed(self, error: Exception) -> None:
        if isinstance(error, CalledOff):
            self._done(Outcome())
        elif isinstance(error, OSError) and self._request is not None:
            self._answer(self._context(), self._not_kept(error))
        else:
            self._fail(error)

    def _is_struck(self, context: Context, faults: Faults, request: Request) -> bool:
        """Whether a fault that a test has asked for ends the request here."""
        header, topics = self._header, self._node.cluster.topics_by_id
        self._fault = faults.take(
            header.api_key, header.client_id, request, lambda topic_id: getattr(topics.get(topic_id), "name", None)
        )
        fault = self._fault
        if fault is None or fault.effect in {Effect.DELAY, Effect.THROTTLE} or fault.is_handled:
            return False
        if fault.effect is Effect.ERROR:
            self._answer(context, error_answer(request, header.api_version, fault.error_code))
        else:
            is_ignored = fault.effect is Effect.BLACKHOLE
            self._done(Outcome(must_close=not is_ignored, is_ignored=is_ignored))
        return True

    def _context(self) -> Context:
        node, header = self._node, self._header
        now_ms = node.scheduler.now_ms()
        return Context(
            broker=node.info,
            cluster=node.cluster,
            connection=self._connection,
            services=node.services,
            scheduler=node.scheduler,
            mutations=node.enforcement.mutations(self._session, header.api_key, header.api_version, now_ms),
            api_key=header.api_key,
            api_version=header.api_version,
            client_id=header.client_id,
            registry=node.registry,
            now_ms=now_ms,
        )

    def _is_intercepted(self, request: Request) -> bool:
        node, header = self._node, self._header
        result = node.controls.ask(
            Intercepted(
                api_key=header.api_key,
                api_version=header.api_version,
                client_id=header.client_id,
                broker_id=node.info.id,
                principal=self._connection.principal,
                request=request,
            )
        )
        if result is None:
            return False
        if isinstance(result, Break):
            self._done(Outcome(must_close=result is Break.HANG_UP, is_ignored=result is Break.IGNORE))
        else:
            self._answer(self._context(), result)
        return True

    def _elapsed_ns(self) -> int:
        return self._node.enforcement.thread_ns() - self._started_ns if self._started_ns else 0

    def _answer(self, context: Context, response: Response | None) -> None:
        if self._busy_ns < 0:
            self._busy_ns = self._elapsed_ns()
        now_ms = self._node.scheduler.now_ms()
        if self._node.cluster.changes:
            response = self._kept(response)
        try:
            throttle, parts = self._judge(context, response, now_ms)
        except WireError as error:
            self._fail(error)
            return
        time_ms = max(throttle.time_ms, 0)
        if time_ms:
            self._node.enforcement.throttle(self._session, throttle, now_ms, self._connection)
        self._note(now_ms, sum(map(len, parts)), time_ms)
        closes = self._connection.close_after_response
        outcome = Outcome(parts, must_close=closes, written=self._network_time(), at_ms=now_ms)
        if self._manner.delay is Delay.MUTE:
            outcome.mute_ms = time_ms
        elif self._manner.delay is Delay.LATE:
            outcome.late_ms = time_ms
        else:
            outcome.late_ms = self._held_ms(context, time_ms, now_ms)
        if self._fault is not None:
            if self._fault.effect is Effect.DELAY:
                outcome.late_ms += self._fault.time_ms
            elif self._fault.effect is Effect.DISCONNECT:
                outcome = Outcome(must_close=True)
        self._done(outcome)

    def _kept(self, response: Response | None) -> Response | None:
        """The answer, if what the request has changed can be kept; if not, it has been undone."""
        try:
            self._node.cluster.save()
        except OSError as error:
            return self._not_kept(error)
        return response

    def _not_kept(self, error: OSError) -> Response | None:
        """What is answered where the disk has refused."""
        assert self._request is not None
        self._node.refusals.add(self._node.info.id, error, self._node.scheduler.now_ms())
        # Kafka's group coordinator tells its clients so, who then ask for it again
        to_coordinator = self._header.api_key in _COORDINATED
        code = ErrorCode.NOT_COORDINATOR if to_coordinator else ErrorCode.KAFKA_STORAGE_ERROR
        return error_answer(self._request, self._header.api_version, code)

    def _held_ms(self, context: Context, throttle_ms: int, now_ms: int) -> int:
        """What is left of the last throttle of this API, whose place `throttle_ms` takes."""
        held = self._connection.held_until_ms
        left_ms = max(0, held.get(context.api_key, 0) - now_ms)
        if throttle_ms or left_ms:
            held[context.api_key] = context.now_ms + throttle_ms
            self._node.enforcement.unthrottle(now_ms)
        return left_ms

    def _before_fetch(self, request: FetchRequest | ShareFetchRequest, now_ms: int) -> None:
        enforcement = self._node.enforcement
        if self._manner.empties_fetches:
            enforcement.cap(self._session, request)
        if self._manner.delay is Delay.NEXT:
            self._ahead_ms = enforcement.ahead_of_fetch_ms(self._session, now_ms)

    def _is_refused(self, request: Request, now_ms: int) -> bool:
        """Refuse, unseen by any handler, what would be late beyond its own timeout."""
        most_ms = self._manner.most_ms
        if most_ms is None or not self._manner.refuses_at_most or not isinstance(request, ProduceRequest):
            return False
        most_ms = max(most_ms, request.timeout_ms)
        time_ms = self._node.enforcement.refused_produce_ms(self._session, self._size, most_ms, now_ms)
        if not time_ms:
            return False
        header = self._header
        response = error_answer(request, header.api_version, ErrorCode.POLICY_VIOLATION)
        parts = []
        if isinstance(response, ProduceResponse):  # None with acks=0
            response.throttle_time_ms = time_ms
            parts = encode_response(response, header.api_version, header.correlation_id)
        self._note(now_ms, sum(map(len, parts)), time_ms)
        self._done(Outcome(parts))
        return True

    def _judge(self, context: Context, response: Response | None, now_ms: int) -> "tuple[Throttle, list[Part]]":
        """Let quotas have their say and encode."""
        header = self._header
        injected_ms = self._injected_ms()
        if isinstance(response, FetchResponse | ShareFetchResponse):
            parts = encode_response(response, header.api_version, header.correlation_id)
            throttle = self._bounded(longer(self._after_fetch(parts, now_ms), injected_ms))
            if throttle.time_ms <= 0:
                return throttle, parts
            is_asked_for = self._fault is not None and throttle.time_ms == self._fault.time_ms
            if (self._manner.empties_fetches and not is_asked_for) or self._is_too_late:
                response = context.emptied()
        else:
            throttle = self._bounded(longer(self._after(context, now_ms), injected_ms))
        if response is None:
            return throttle, []
        if throttle.time_ms > 0 and self._manner.tells and hasattr(response, "throttle_time_ms"):
            response.throttle_time_ms = throttle.time_ms
        return throttle, encode_response(response, header.api_version, header.correlation_id)

    def _injected_ms(self) -> int:
        controls, fault = self._node.controls, self._fault
        if fault is not None and fault.effect is Effect.THROTTLE:
            return fault.time_ms
        return controls.take_throttle(self._header.api_key, self._header.client_id) if controls.has_throttles else 0

    def _after_fetch(self, parts: "list[Part]", now_ms: int) -> Throttle:
        nbytes = _fetched_bytes(parts, self._header)
        manner, enforcement = self._manner, self._node.enforcement
        most_sent_ms = 0.0 if manner.empties_fetches else inf
        if manner.refuses_at_most and manner.most_ms is not None:
            most_sent_ms = manner.most_ms
        throttle = enforcement.after_fetch(self._session, nbytes, self._busy_ns, now_ms, most_sent_ms=most_sent_ms)
        self._is_too_late = throttle.time_ms > most_sent_ms
        return Throttle(self._ahead_ms, throttle.quota_type) if manner.delay is Delay.NEXT else throttle

    def _bounded(self, throttle: Throttle) -> Throttle:
        most_ms = self._manner.most_ms
        return throttle if most_ms is None or throttle.time_ms <= most_ms else throttle._replace(time_ms=most_ms)

    def _after(self, context: Context, now_ms: int) -> Throttle:
        enforcement, request = self._node.enforcement, self._request
        if isinstance(request, ProduceRequest):
            return enforcement.after_produce(self._session, self._size, self._busy_ns, now_ms, acks=request.acks)
        return enforcement.after_request(self._session, context.mutations, self._busy_ns, now_ms)

    def _note(self, now_ms: int, response_bytes: int, throttle_time_ms: int) -> None:
        header = self._header
        self._node.record(
            SeenRequest(
                now_ms,
                header.api_key,
                header.api_version,
                header.client_id,
                self._connection.principal,
                self._node.info.id,
                self._size,
                response_bytes,
                throttle_time_ms,
            )
        )

    def _network_time(self) -> Callable[[], None] | None:
        """Kafka charges the network thread's time for sending afterwards, without a throttle of its own."""
        if not self._started_ns:
            return None
        enforcement = self._node.enforcement
        answered_ns = enforcement.thread_ns()
        scheduler = self._node.scheduler
        return lambda: enforcement.record_network_time(
            self._session, enforcement.thread_ns() - answered_ns, scheduler.now_ms()
        )

    def _fail(self, error: Exception) -> None:
        api = API[self._header.api_key]
        _LOG.error("broker %s: %s v%s failed", self._node.info.id, api.name, self._header.api_version, exc_info=error)
        self._done(Outcome(must_close=True))


def _fetched_bytes(parts: "list[Part]", header: RequestHeader) -> int:
    """Kafka's `FetchResponse.sizeOf`: 4 bytes and the response's body."""
    in_front = _LENGTH_AND_CORRELATION_ID + response_header_version(header.api_key, header.api_version)
    return sum(map(len, parts)) - in_front + _LENGTH_OF_RECORDS
