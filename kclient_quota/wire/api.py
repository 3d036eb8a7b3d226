"""What is known of each API: its key, its versions and which of them are flexible or throttled by the client."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kclient_quota.wire.schema import Message

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kclient_quota.wire.schema import Request, Response

API_VERSIONS_KEY = 18


@dataclass(frozen=True, slots=True)
class Api:
    """One API of Kafka.

    Attributes:
        key: Kafka's number.
        name: Kafka's name, `"Produce"`.
        request: class of the request.
        response: class of the response.
        min_version: the oldest version we speak.
        max_version: the newest version we speak that Kafka calls stable.
        flexible_since: first version with compact lengths and tags (KIP-482), or None.
    """

    key: int
    name: str
    request: type[Request]
    response: type[Response]
    min_version: int
    max_version: int
    flexible_since: int | None

    def is_flexible(self, version: int) -> bool:
        """Whether this version has compact lengths and tags."""
        return self.flexible_since is not None and version >= self.flexible_since

    def request_header_version(self, version: int) -> int:
        """Version of the header in front of a request."""
        return 2 if self.is_flexible(version) else 1

    def response_header_version(self, version: int) -> int:
        """Version of the header in front of a response; ApiVersions stays at 0, so that any client can read it."""
        return 1 if self.is_flexible(version) and self.key != API_VERSIONS_KEY else 0


def build_registry(namespace: Mapping[str, Any]) -> dict[int, Api]:
    """Pair the request and response classes found in a namespace, by key."""
    pairs: dict[int, dict[bool, Any]] = {}
    for value in namespace.values():
        if isinstance(value, type) and issubclass(value, Message):
            pairs.setdefault(value.__schema__.api_key, {})[value.__schema__.is_request] = value
    return {key: _api(key, pair[True], pair[False]) for key, pair in sorted(pairs.items())}


def _api(key: int, request: type[Request], response: type[Response]) -> Api:
    schema = request.__schema__
    return Api(
        key=key,
        name=schema.name.removesuffix("Request"),
        request=request,
        response=response,
        min_version=schema.valid_versions[0],
        max_version=schema.valid_versions[-1] - schema.latest_unstable,
        flexible_since=_first(schema.valid_versions, schema.flexible_versions),
    )


def _first(valid: range, wanted: range) -> int | None:
    return next((version for version in valid if version in wanted), None)
