"""Who has a quota and which quotas there are: KIP-546's entities, Kafka's quota keys and the rules of both.

The rules and messages are those of Kafka's ClientQuotaControlManager: whoever reads one here knows it there.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from ipaddress import ip_address
from types import MappingProxyType
from typing import Final, TypeAlias
from urllib.parse import quote, unquote

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"

PRODUCER_BYTE_RATE: Final = "producer_byte_rate"
CONSUMER_BYTE_RATE: Final = "consumer_byte_rate"
REQUEST_PERCENTAGE: Final = "request_percentage"
CONTROLLER_MUTATION_RATE: Final = "controller_mutation_rate"
CONNECTION_CREATION_RATE: Final = "connection_creation_rate"
REQUEST_RATE: Final = "request_rate"
"""The draft of KIP-124: requests per second. Embedded broker and gateway take it, Apache Kafka does not."""

REQUEST_RATE_REFUSED: Final = (
    "Apache Kafka has no quota 'request_rate': only the embedded broker and the gateway take requests per second. "
    "Set 'request_percentage' (percent of one broker thread) instead."
)


class Default(Enum):
    """The type of `DEFAULT`."""

    DEFAULT = "<default>"

    def __repr__(self) -> str:
        return "DEFAULT"


DEFAULT: Final = Default.DEFAULT
"""In place of a name: whoever has no entry of their own. A user or client-id may well be named "<default>"."""

Name: TypeAlias = str | Default

_LONGEST_NAME_BYTES: Final = 0x7FFF
"""Kafka's protocol has no longer strings: a broker closes the connection that brings one."""


class ClientQuotaEntity:
    """KIP-546's entity: entity types with their names, such as `ClientQuotaEntity({"user": "alice"})`.

    Args:
        entries: "user", "client-id" or "ip" (others are kept) to a name, or to `DEFAULT` (or None, as on the wire).
    """

    __slots__ = ("_entries", "_hash")

    USER: Final = USER
    CLIENT_ID: Final = CLIENT_ID
    IP: Final = IP

    def __init__(self, entries: Mapping[str, Name | None]) -> None:
        named: dict[str, Name] = {kind: DEFAULT if name is None else name for kind, name in entries.items()}
        self._entries = MappingProxyType(named)
        self._hash = hash(frozenset(named.items()))

    @classmethod
    def of(
        cls, *, user: Name | None = None, client_id: Name | None = None, ip: Name | None = None
    ) -> "ClientQuotaEntity":
        """An entity of the types that are given; None leaves a type out."""
        named = ((USER, user), (CLIENT_ID, client_id), (IP, ip))
        return cls({kind: name for kind, name in named if name is not None})

    @property
    def entries(self) -> Mapping[str, Name]:
        """Entity type to name or `DEFAULT`."""
        return self._entries

    @property
    def user(self) -> Name | None:
        """The user's name, `DEFAULT`, or None when users play no part."""
        return self._entries.get(USER)

    @property
    def client_id(self) -> Name | None:
        """The client-id, `DEFAULT`, or None when client-ids play no part."""
        return self._entries.get(CLIENT_ID)

    @property
    def ip(self) -> Name | None:
        """The address, `DEFAULT`, or None when addresses play no part."""
        return self._entries.get(IP)

    def wire_entries(self) -> list[tuple[str, str | None]]:
        """Pairs of type and name as the protocol has them: None is the default."""
        return [(kind, None if name is DEFAULT else name) for kind, name in self._entries.items()]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ClientQuotaEntity):
            return NotImplemented
        return self._entries == other._entries

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        return f"ClientQuotaEntity({dict(self._entries)!r})"

    def __str__(self) -> str:
        names = (f"{kind}={'<default>' if name is DEFAULT else name}" for kind, name in self._entries.items())
        return "{" + ", ".join(names) + "}"


def name_problem(kind: str, name: Name | None) -> str | None:
    """What is wrong with the name of an entity that brokers are to be asked for, or None."""
    most = _LONGEST_NAME_BYTES
    if not isinstance(name, str) or len(name) * 4 <= most or (size := len(name.encode(errors="surrogatepass"))) <= most:
        return None
    return f"{kind} {name[:20]}...: the name has {size} bytes, and Kafka's protocol takes {most} at most; shorten it"


def sanitize(name: str) -> str:
    """Kafka's `Sanitizer.sanitize`: percent-encoded UTF-8 but for letters, digits and `. - _`."""
    return quote(name, safe="").replace("~", "%7E")


def desanitize(name: str) -> str:
    """What `sanitize` has made `name` of.

    Raises:
        UnicodeDecodeError: what is percent-encoded is no UTF-8, so that no name was made into this.
    """
    return unquote(name, errors="strict")


class _Number(Enum):
    """Kafka's ConfigDef types of quotas: the largest value; DOUBLE is anything.

    Quotas are doubles, and Java's largest long is none: it counts as the next one, with which many write "no limit".
    """

    DOUBLE = None
    LONG = 2**63
    INT = 2**31 - 1


@dataclass(frozen=True, slots=True)
class QuotaKey:
    """One kind of quota.

    Attributes:
        name: as configured, such as "producer_byte_rate".
        unit: what its values count.
        number: the values it takes.
        ours: whether Apache Kafka does not know it.
    """

    name: str
    unit: str
    number: _Number
    ours: bool = False


_CLIENT_KEYS: Final = {
    key.name: key
    for key in (
        QuotaKey(PRODUCER_BYTE_RATE, "bytes per second", _Number.LONG),
        QuotaKey(CONSUMER_BYTE_RATE, "bytes per second", _Number.LONG),
        QuotaKey(REQUEST_PERCENTAGE, "percent of one thread", _Number.DOUBLE),
        QuotaKey(CONTROLLER_MUTATION_RATE, "partitions per second", _Number.DOUBLE),
        QuotaKey(REQUEST_RATE, "requests per second", _Number.DOUBLE, ours=True),
    )
}
_IP_KEYS: Final = {
    CONNECTION_CREATION_RATE: QuotaKey(CONNECTION_CREATION_RATE, "connections per second", _Number.INT),
}
QUOTA_KEYS: Final = MappingProxyType({**_CLIENT_KEYS, **_IP_KEYS})

_FRACTION: Final = 1e-6


def _is_ip_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def entity_problem(
    entries: Iterable[tuple[str, str | None]], resolves: Callable[[str], bool] = _is_ip_address
) -> str | None:
    """What is wrong with an entity whose quotas are to be altered, in Kafka's words.

    Args:
        entries: pairs of type and name as the protocol has them (None is the default).
        resolves: whether an ip entity names an address or a host; without it, only addresses do.

    Returns:
        A message for INVALID_REQUEST, or None when nothing is wrong.
    """
    seen: dict[str, str | None] = {}
    for kind, name in entries:
        if kind in seen:
            return f"Invalid client quota entity, duplicate entity entry {kind}"
        if kind not in {USER, CLIENT_ID, IP}:
            return f"Unhandled client quota entity type: {kind}"
        if name is not None and not name:
            return f"Empty {kind} not supported"
        seen[kind] = name
    if not seen:
        return "Invalid empty client quota entity"
    return _ip_problem(seen, resolves) if IP in seen else None


def _ip_problem(entries: Mapping[str, str | None], resolves: Callable[[str], bool]) -> str | None:
    if len(entries) > 1:
        return "Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId"
    address = entries[IP]
    if address is not None and not resolves(address):
        return f"{address} is not a valid IP or resolvable host."
    return None


def quota_problem(kinds: Iterable[str], key: str, value: float, *, ours: bool = True) -> str | None:
    """What is wrong with setting one quota, in Kafka's words.

    Args:
        kinds: the entity's types.
        key: the quota's name.
        value: what it is to be.
        ours: whether keys that Apache Kafka does not know are taken, too.

    Returns:
        A message for INVALID_REQUEST, or None when nothing is wrong.
    """
    known = (_IP_KEYS if IP in kinds else _CLIENT_KEYS).get(key)
    if known is None or (known.ours and not ours):
        return f"Invalid configuration key {key}"
    if not value > 0:
        return f"Quota {key} must be greater than 0"
    if known.number is _Number.DOUBLE:
        return None
    if value > known.number.value:
        article = "an" if known.number is _Number.INT else "a"
        return f"Proposed value for {key} is too large for {article} {known.number.name}."
    if abs(value % 1.0) > _FRACTION:
        return f"{key} cannot be a fractional value."
    return None
