"""Our own configuration keys, taken out of a client's before librdkafka, which refuses unknown keys, sees them."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypeVar

from kclient_quota.errors import ConfigError

DEFAULT_CLIENT_ID = "rdkafka"
"""librdkafka's `client.id`."""
_QUANTITY = re.compile(r"([0-9][0-9_]*(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?)\s*(?:([kKMGT]?)(i?)B)?(/s)?", re.ASCII)
_C_NUMBER = re.compile(r"\s*([+-]?)(0x[0-9a-f]+|0[0-7]*|[1-9][0-9]*)", re.ASCII)
_C_BLANKS = " \t\n\v\f\r"
_POWERS = {"": 0, "k": 1, "K": 1, "M": 2, "G": 3, "T": 4}


def quantity(text: str) -> float:
    """Bytes or bytes per second as people write them: `1048576`, `10MB` (10,000,000), `1MiB/s` (1,048,576).

    Raises:
        ConfigError: it is no such number.
    """
    found = _QUANTITY.fullmatch(text.strip())
    if found is None or (found[3] and not found[2]):
        raise ConfigError(f"{text!r} is no number of bytes; write it as 1048576, 10MB or 1MiB/s")
    return float(found[1].replace("_", "")) * float(1024 if found[3] else 1000) ** _POWERS[found[2] or ""]


class Backoff(StrEnum):
    """`quota.backoff`: what a client does with work that its broker may not take yet."""

    BLOCK = "block"
    RAISE = "raise"
    OFF = "off"


class LimitSource(StrEnum):
    """`quota.limit.source`: where the quota that paces a client comes from."""

    AUTO = "auto"
    CONFIG = "config"
    CALLBACK = "callback"
    CLUSTER = "cluster"
    LEARNED = "learned"


class TransactionTimeout(StrEnum):
    """`quota.transaction.timeout`: what becomes of a transaction that throttling would push past its timeout."""

    REPORT = "report"
    ABORT = "abort"


LIMIT_KEYS = ("producer_byte_rate", "consumer_byte_rate", "request_percentage")
"""Limits by hand: bytes per second, bytes per second, percent of one broker thread; all per broker."""

QUOTA_KEYS = (
    "quota.backoff",
    "quota.lane.of",
    "quota.lanes",
    "quota.limit.source",
    "quota.max.delay.ms",
    "quota.message.deadline.ms",
    "quota.tenant.of",
    "quota.transaction.timeout",
    "quota.user",
    "max.block.ms",
    "client.quota.callback.class",
    "interceptor.classes",
    *LIMIT_KEYS,
)

E = TypeVar("E", bound=StrEnum)

# Close enough to be a slip of one of ours, too far from anything of librdkafka's (as max.poll.interval.ms).
_SLIP_CUTOFF = 0.84


@dataclass(frozen=True, slots=True)
class QuotaConfig:
    """What a user asked of kclient-quota, checked.

    Attributes:
        backoff: whether a call whose work a broker may not take yet waits, raises or passes it on to librdkafka.
        max_block_ms: longest wait of one `produce()`, and of `close()`, in milliseconds.
        max_delay_ms: how long a message may wait in the send queue for a fuller batch, in milliseconds; 0: each
            goes by itself, which costs the most quota. Where messages wait for many partitions of a broker far away it
            may be longer (a round of P partitions takes P/5 of the way there and back), and so it may beside clients
            that never give way, where one batch goes from one throttle to the next.
        limit_source: where the limit comes from; the first takes whichever of the others answers first, in this order.
        user: the principal's name where it is not the SASL user name (mTLS, OAuth).
        producer_byte_rate: a producer's limit by hand, in bytes per second and broker.
        consumer_byte_rate: a consumer's limit by hand, in bytes per second and broker.
        request_percentage: a limit of requests by hand, in percent of one request-handler thread, per broker.
        callback: a `ClientQuotaCallback` that says the limits: the object, its class or its dotted path.
        transaction_timeout: whether a transaction that would outlive its timeout is aborted, or told of only.
        interceptors: interceptor objects, classes or dotted paths, in order.
        lanes: of a producer, by name, as `{"alerts": {"priority": "strict"}, "bulk": {"weight": 1}}`; keys of a lane
            are `priority` ("strict"), `weight` (1), `full` ("block", "raise", "drop-oldest", "drop-newest"; what
            `quota.backoff` says), `deadline.ms` and `newest` (false).
        lane_of: whose lane a producer's message takes: a mapping of topics to lanes, the name of a header that holds a
            lane's name, or a function of its `ProducerRecord`.
        message_deadline_ms: how long a producer's message is worth sending, in milliseconds, or a function of its
            `ProducerRecord` that says so; without it until `message.timeout.ms`.
        tenant_of: a function of a producer's `ProducerRecord` that names the tenant on whose behalf it is sent.
    """

    backoff: Backoff = Backoff.BLOCK
    max_block_ms: int = 60_000
    max_delay_ms: int = 1_000
    limit_source: LimitSource = LimitSource.AUTO
    user: str | None = None
    producer_byte_rate: float | None = None
    consumer_byte_rate: float | None = None
    request_percentage: float | None = None
    callback: Any = None
    interceptors: tuple[Any, ...] = ()
    transaction_timeout: TransactionTimeout = TransactionTimeout.REPORT
    lanes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    lane_of: Mapping[str, str] | str | Callable[[Any], str | None] | None = None
    message_deadline_ms: int | Callable[[Any], float | None] | None = None
    tenant_of: Callable[[Any], Any] | None = None

    @property
    def has_limit(self) -> bool:
        """Whether any limit was given by hand."""
        return any(getattr(self, key) is not None for key in LIMIT_KEYS)


def split(conf: Mapping[str, Any]) -> tuple[dict[str, Any], QuotaConfig]:
    """Part a client configuration into librdkafka's and ours.

    Returns:
        the configuration for confluent_kafka without our keys, and ours, checked.

    Raises:
        ConfigError: a value that cannot be used, keys that contradict each other, or a slip of one of ours.
    """
    for key in conf:
        if isinstance(key, str):  # librdkafka refuses others
            _refuse_slip(key)
    rest = {key: value for key, value in conf.items() if key not in QUOTA_KEYS}
    ours = QuotaConfig(
        backoff=_choice(conf, "quota.backoff", Backoff, Backoff.BLOCK),
        max_block_ms=_milliseconds(conf, "max.block.ms", 60_000),
        max_delay_ms=_milliseconds(conf, "quota.max.delay.ms", 1_000),
        limit_source=_choice(conf, "quota.limit.source", LimitSource, LimitSource.AUTO),
        user=_text(conf, "quota.user"),
        producer_byte_rate=_limit(conf, "producer_byte_rate"),
        consumer_byte_rate=_limit(conf, "consumer_byte_rate"),
        request_percentage=_limit(conf, "request_percentage"),
        callback=conf.get("client.quota.callback.class"),
        interceptors=_listed(conf.get("interceptor.classes")),
        transaction_timeout=_choice(conf, "quota.transaction.timeout", TransactionTimeout, TransactionTimeout.REPORT),
        lanes=_lanes(conf),
        lane_of=conf.get("quota.lane.of"),
        message_deadline_ms=_deadline(conf),
        tenant_of=conf.get("quota.tenant.of"),
    )
    _refuse_unsorted(ours)
    _refuse_contradictions(ours)
    return rest, ours


def nearest_key(key: str, known: tuple[str, ...], cutoff: float = 0.6) -> str | None:
    """The known key that `key` is most likely a slip of, or None."""
    import difflib  # noqa: PLC0415 - only for keys that nobody knows

    found = difflib.get_close_matches(key, known, n=1, cutoff=cutoff)
    return found[0] if found else None


def _refuse_slip(key: str) -> None:
    if key in QUOTA_KEYS:
        return
    dotted = key.replace("_", ".")
    if key.startswith("quota.") or nearest_key(key, QUOTA_KEYS, _SLIP_CUTOFF):
        hint = nearest_key(key, QUOTA_KEYS)
    elif any(dotted == ours.replace("_", ".") for ours in QUOTA_KEYS):
        hint = next(ours for ours in QUOTA_KEYS if dotted == ours.replace("_", "."))
    else:
        return
    raise ConfigError(f"unknown configuration key {key!r}" + (f": did you mean {hint!r}?" if hint else ""))


def _refuse_contradictions(ours: QuotaConfig) -> None:
    source = ours.limit_source
    if source is LimitSource.CONFIG and not ours.has_limit:
        raise ConfigError(f"quota.limit.source=config needs a limit: set one of {', '.join(LIMIT_KEYS)}")
    if source in {LimitSource.CLUSTER, LimitSource.LEARNED, LimitSource.CALLBACK} and ours.has_limit:
        given = ", ".join(key for key in LIMIT_KEYS if getattr(ours, key) is not None)
        raise ConfigError(f"{given} contradicts quota.limit.source={source}: remove one of them")
    if source is LimitSource.CALLBACK and ours.callback is None:
        raise ConfigError("quota.limit.source=callback needs client.quota.callback.class")


def _refuse_unsorted(ours: QuotaConfig) -> None:
    """Whose message goes first must be told wholly, or not at all."""
    of, names = ours.lane_of, {"", *ours.lanes}
    if of is None and names != {""}:
        raise ConfigError(
            "quota.lanes needs quota.lane.of, which says what goes there: a mapping of topics to lanes, the name of a "
            "header, or a function of the record"
        )
    if of is not None and not ours.lanes:
        raise ConfigError("quota.lane.of needs quota.lanes, as {'alerts': {'priority': 'strict'}}; or leave both out")
    if isinstance(of, Mapping):
        unknown = sorted({str(name) for name in of.values()} - names)
        if unknown:
            lanes = ", ".join(ours.lanes)
            raise ConfigError(f"quota.lane.of: quota.lanes has no lane {', '.join(unknown)}; it has {lanes}")
    elif of == "" or not isinstance(of, (str, Callable, type(None))):  # type: ignore[arg-type]
        raise ConfigError(
            f"quota.lane.of={of!r}: give a mapping of topics to lanes, a header's name, or a function of the record"
        )
    if ours.tenant_of is not None and not callable(ours.tenant_of):
        raise ConfigError(f"quota.tenant.of={ours.tenant_of!r}: give a function of the record that names its tenant")
    if ours.backoff is Backoff.OFF and (ours.lanes or ours.tenant_of or ours.message_deadline_ms):
        raise ConfigError(
            "quota.lanes, quota.tenant.of and quota.message.deadline.ms need messages to wait here, and with "
            "quota.backoff=off none does: remove one of them"
        )


def _lanes(conf: Mapping[str, Any]) -> Mapping[str, Mapping[str, Any]]:
    given = conf.get("quota.lanes")
    if given is None:
        return {}
    if not isinstance(given, Mapping) or not all(isinstance(name, str) for name in given):
        raise ConfigError(f"quota.lanes={given!r}: give a mapping of names, as {{'alerts': {{'priority': 'strict'}}}}")
    return dict(given)


def _deadline(conf: Mapping[str, Any]) -> int | Callable[[Any], float | None] | None:
    key = "quota.message.deadline.ms"
    given = conf.get(key)
    if given is None:
        return None
    if callable(given):
        return given  # type: ignore[no-any-return]
    value = _number(given, key)
    if value < 1 or value != int(value):
        raise ConfigError(f"{key}={given!r}: give a whole number of milliseconds above 0, or a function of the record")
    return int(value)


def _choice(conf: Mapping[str, Any], key: str, choices: type[E], default: E) -> E:
    value = conf.get(key, default)
    try:
        return choices(value)
    except ValueError:
        raise ConfigError(f"{key}={value!r}: choose one of {', '.join(choices)}") from None


def _text(conf: Mapping[str, Any], key: str) -> str | None:
    value = conf.get(key)
    if value is None or (isinstance(value, str) and value):
        return value
    raise ConfigError(f"{key}={value!r}: give a non-empty string")


def _milliseconds(conf: Mapping[str, Any], key: str, default: int) -> int:
    value = _number(conf.get(key, default), key)
    if value < 0 or value != int(value):
        raise ConfigError(f"{key}={conf[key]!r}: give a whole number of milliseconds, zero or more")
    return int(value)


def _limit(conf: Mapping[str, Any], key: str) -> float | None:
    if conf.get(key) is None:
        return None
    value = _number(conf[key], key)
    if value <= 0:
        raise ConfigError(f"{key}={conf[key]!r}: a limit is greater than 0; leave it out for no limit")
    return value


def _number(value: object, key: str) -> float:
    try:
        number = float(value) if isinstance(value, (int, float, str)) and not isinstance(value, bool) else math.nan
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise ConfigError(f"{key}={value!r}: give a finite number")
    return number


def _listed(value: Any) -> tuple[Any, ...]:
    if value is None:
        return ()
    if isinstance(value, str):
        return tuple(part.strip() for part in value.split(",") if part.strip())
    return tuple(value) if isinstance(value, (list, tuple)) else (value,)


def is_true(value: object) -> bool:
    """Whether librdkafka takes this for true."""
    return str(value).lower() in {"true", "1", "t"}


def as_read(conf: Mapping[str, Any], key: str, default: str = "") -> str:
    """A text of librdkafka's own, as librdkafka reads it: nothing is its default, and blanks before it do not count.

    It is a text of C's, which ends with the first NUL.
    """
    value = conf.get(key)
    text = "" if value is None else str(value).partition("\0")[0]
    return text.lstrip(_C_BLANKS) if text else default


def without_callbacks(conf: Mapping[str, Any]) -> dict[str, Any]:
    """What a thread may hold: it must not keep the application's objects alive, and through them the client."""
    return {key: value for key, value in conf.items() if key == "oauth_cb" or not callable(value)}


def client_id_of(conf: Mapping[str, Any]) -> str:
    """What brokers are told of who this is."""
    return as_read(conf, "client.id", DEFAULT_CLIENT_ID)


def user_of(conf: Mapping[str, Any]) -> str | None:
    """The name that this client logs in with; None where it logs in by other means, or not at all."""
    return (as_read(conf, "sasl.username") or None) if "sasl" in security_protocol(conf) else None


def security_protocol(conf: Mapping[str, Any]) -> str:
    """In small letters, such as "sasl_ssl"."""
    return as_read(conf, "security.protocol", "plaintext").lower()


def sasl_mechanism(conf: Mapping[str, Any]) -> str:
    """In capitals; "" where none is set."""
    return (as_read(conf, "sasl.mechanisms") or as_read(conf, "sasl.mechanism")).upper()


def whole_number(conf: Mapping[str, Any], keys: Sequence[str], default: int) -> int:
    """A number of librdkafka's own by any of its `keys`, of which the last one given counts, as with librdkafka.

    It is read as librdkafka reads it, which is C's way: what stands behind the number does not count (`30000.0`), and
    it may be hexadecimal or octal. What is none is for librdkafka to refuse.
    """
    for key in reversed([key for key in conf if key in keys]):
        found = _C_NUMBER.match(str(conf[key]).lower())
        if found:
            digits = found[2]
            base = 16 if "x" in digits else 8 if digits.startswith("0") else 10
            return int(found[1] + digits, base)
    return default
