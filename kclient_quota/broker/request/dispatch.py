"""From a request's bytes to a response's: finds the handler, or says that there is none.

No sockets here: a listener hands over frames and is told what to write, for how long to mute the connection (KIP-219)
and whether to close it.
"""

from kclient_telemetry import logger_of

from kclient_quota.broker.request.context import ConnectionState
from kclient_quota.broker.request.exchange import Done, Exchange
from kclient_quota.broker.request.node import Node
from kclient_quota.broker.request.outcome import Outcome
from kclient_quota.broker.request.promise import Drive
from kclient_quota.broker.request.registry import advertised
from kclient_quota.errors import WireError
from kclient_quota.wire.error_codes import ErrorCode
from kclient_quota.wire.frame import RequestHeader, decode_request_header, encode_response
from kclient_quota.wire.messages import (
    ApiVersionsResponse,
)

_LOG = logger_of(__name__)
_API_VERSIONS = 18


def dispatch(node: Node, connection: ConnectionState, frame: memoryview, end: int, done: Done) -> Drive[None] | None:
    """Answer one request.

    Args:
        node: the broker that was asked.
        connection: who asks.
        frame: the request, its length taken off, at the start of a buffer that stays as it is until `done`.
        end: where the request ends in the buffer.
        done: called once with the outcome, possibly before this returns.

    Returns:
        The handler that is waiting, to be cancelled when the client goes away, or None when `done` has been called.
    """
    try:
        header, position = decode_request_header(frame, 0, end)
    except WireError as error:
        if node.may_complain(connection.client_address):
            _LOG.warning("broker %s: %s sent %s", node.info.id, connection.client_address, error)
        done(Outcome(must_close=True))
        return None
    connection.client_id = header.client_id
    entry = node.registry.get(header.api_key)
    is_there = entry is not None and header.api_key not in node.cluster.manner.absent
    if entry is None or not is_there or not (entry.before_authentication or _is_authenticated(node, connection)):
        if node.may_complain(connection.client_address):
            who = connection.client_address, connection.listener
            _LOG.warning("broker %s: API %s is not to be had for %s on %s", node.info.id, header.api_key, *who)
        done(Outcome(must_close=True))
        return None
    if not entry.min_version <= header.api_version <= entry.max_version:
        done(_unsupported(node, connection, header))
        return None
    return Exchange(node, connection, header, end, done).run(entry, frame, position)


def _is_authenticated(node: Node, connection: ConnectionState) -> bool:
    ends_ms = connection.session_ends_ms
    return connection.is_authenticated and (ends_ms is None or node.scheduler.now_ms() <= ends_ms)


def _unsupported(node: Node, connection: ConnectionState, header: RequestHeader) -> Outcome:
    """ApiVersions in an unknown version is answered in version 0 (KIP-511); anything else ends the connection."""
    if header.api_key != _API_VERSIONS:
        if node.may_complain(address := connection.client_address):
            wanted = header.api_key, header.api_version
            _LOG.warning("broker %s: API %s v%s is not spoken: %s has asked for it", node.info.id, *wanted, address)
        return Outcome(must_close=True)
    response = ApiVersionsResponse(
        error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=advertised(node.registry, node.cluster.manner)
    )
    return Outcome(encode_response(response, 0, header.correlation_id))
