"""Faults on demand, in the words of Apache Kafka's own protocol fault proxy, snake_cased.

    broker.faults.inject_error("Produce", "NOT_LEADER_OR_FOLLOWER", topic="orders", count=3)
    broker.faults.delay_on("Fetch", 200, probability=0.1)
    broker.faults.disconnect_on("Metadata", client_id="orders-service", count=1)
    broker.faults.blackhole_client("orders-service")
    broker.faults.throttle("Produce", 12 * 3_600_000, count=1)
    broker.faults.clear()

The first fault that fits a request is taken. Chance is seeded, so that a run can be repeated.
Pure: randomness is given.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any
from uuid import UUID

from kclient_quota.errors import ConfigError
from kclient_quota.wire.error_codes import ErrorCode
from kclient_quota.wire.messages import API
from kclient_quota.wire.schema import Request, Struct

_BY_NAME: Mapping[str, int] = {api.name: key for key, api in API.items()}
_TOPIC_FIELDS = frozenset({"name", "topic", "topic_name", "topic_id"})
_TOPIC_LISTS = frozenset({"topic_names", "topics"})
_CHOICES: Mapping[str, tuple[Any, str]] = {
    "client_id": (str, "a text"),
    "topic": (str, "a text"),
    "count": (int, "a whole number"),
    "probability": (int | float, "a number"),
}


class Effect(Enum):
    """What a fault does."""

    ERROR = "error"
    """Every part of the answer has this error; nothing is done."""
    DISCONNECT = "disconnect"
    """The connection is closed without an answer."""
    DELAY = "delay"
    """The request is handled; the answer is late."""
    BLACKHOLE = "blackhole"
    """The request is never answered, nor any that follows on the connection."""
    THROTTLE = "throttle"
    """The answer carries a throttle time, and the connection is muted for it."""


@dataclass(slots=True, eq=False)
class Fault:
    """A rule: which requests, how often, and what becomes of them.

    Attributes:
        effect: what it does.
        api_key: Kafka's number of the API, None for every API.
        client_id: only requests of this client; None for any.
        topic: only requests that name this topic; None for any.
        count: how often it still strikes; None until it is cleared.
        probability: with which it strikes a request that fits.
        error_code: for `Effect.ERROR`.
        time_ms: for `Effect.DELAY` and `Effect.THROTTLE`.
        is_handled: for `Effect.DISCONNECT`: the request is handled first, and only its answer is lost.
        struck: how often it has struck.
    """

    effect: Effect
    api_key: int | None = None
    client_id: str | None = None
    topic: str | None = None
    count: int | None = None
    probability: float = 1.0
    error_code: int = 0
    time_ms: int = 0
    is_handled: bool = False
    struck: int = 0


class Faults:
    """Faults of a cluster; its methods may be called from any thread.

    Args:
        chance: a number from 0 to 1, 1 excluded, per call.
        reseed: makes `chance` repeat itself from a seed.

    Attributes:
        is_armed: whether there is any.
    """

    def __init__(self, chance: Callable[[], float], reseed: Callable[[int], None]) -> None:
        self._chance = chance
        self._reseed = reseed
        self._faults: list[Fault] = []
        self.is_armed = False

    # -- asking for them

    def inject_error(self, api: str | int | None, error: str | int, **which: Any) -> Fault:
        """Answer requests with an error and do nothing (`injectError`).

        Args:
            api: Kafka's name or number of the API ("Produce", 0), None for every API.
            error: Kafka's name or number of the error.
            which: `client_id`, `topic`, `count` (how often, None until cleared), `probability` (0 to 1).

        Raises:
            ConfigError: there is no such API, error or choice.
        """
        return self._add(Effect.ERROR, api, which, error_code=error_number(error))

    def disconnect_on(self, api: str | int | None, *, is_handled: bool = False, **which: Any) -> Fault:
        """Close the connection in place of an answer (`disconnectOn`).

        Args:
            api: as in `inject_error`.
            is_handled: whether the request is handled first, so that only the answer is lost.
            which: as in `inject_error`.
        """
        return self._add(Effect.DISCONNECT, api, which, is_handled=is_handled)

    def delay_on(self, api: str | int | None, delay_ms: int, **which: Any) -> Fault:
        """Handle requests and answer `delay_ms` later (`delayOn`); other connections are not held up.

        Args:
            api: as in `inject_error`.
            delay_ms: milliseconds.
            which: as in `inject_error`.
        """
        return self._add(Effect.DELAY, api, which, time_ms=_milliseconds("delay_ms", delay_ms))

    delay = delay_on

    def blackhole_client(self, client_id: str, **which: Any) -> Fault:
        """Never answer a client; its connections stay open (`blackholeClient`).

        Args:
            client_id: whom.
            which: `api`, and as in `inject_error`.
        """
        return self._add(Effect.BLACKHOLE, which.pop("api", None), {**which, "client_id": client_id})

    def throttle(self, api: str | int | None, throttle_time_ms: int, **which: Any) -> Fault:
        """Handle requests, tell them to wait, and mute their connections, whatever the quotas.

        Fetches over a quota are answered empty by Kafka; these answers keep their data.

        Args:
            api: as in `inject_error`.
            throttle_time_ms: milliseconds; hours are as good as any.
            which: as in `inject_error`.
        """
        return self._add(Effect.THROTTLE, api, which, time_ms=_milliseconds("throttle_time_ms", throttle_time_ms))

    def clear(self) -> None:
        """Forget all of them."""
        self._faults = []
        self.is_armed = False

    def seed(self, seed: int) -> None:
        """Let chance begin anew from this seed."""
        self._reseed(seed)

    def load(self, described: Mapping[str, Any]) -> None:
        """Add faults as a YAML file describes them.

            seed: 7
            faults:
              - inject_error: {api: Produce, error: NOT_LEADER_OR_FOLLOWER, count: 3}
              - delay_on: {api: Fetch, delay_ms: 200, probability: 0.1}
              - blackhole_client: {client_id: orders-service}

        Raises:
            ConfigError: it cannot be read so; the message names the entry.
        """
        unknown = set(described) - {"seed", "faults"}
        if unknown:
            raise ConfigError(f"faults: there is no {min(map(str, unknown))}; use seed and faults")
        seed, entries = described.get("seed"), described.get("faults") or []
        if not isinstance(seed, int | None):
            raise ConfigError(f"faults: seed {seed}: write a whole number")
        if not isinstance(entries, list | tuple):
            raise ConfigError("faults: write a list of faults, such as [{delay_on: {...}}]")
        if seed is not None:
            self.seed(seed)
        for number, entry in enumerate(entries, 1):
            if not isinstance(entry, Mapping) or len(entry) != 1:
                raise ConfigError(f"faults, entry {number}: write one name and its choices, such as delay_on: {{...}}")
            ((name, choices),) = entry.items()
            verbs = {verb.__name__: verb for verb in self._verbs()}
            if name not in verbs:
                raise ConfigError(f"faults, entry {number}: there is no {name}; there are {', '.join(verbs)}")
            try:
                verbs[name](**{"api": None, **choices} if name != "blackhole_client" else choices)
            except (TypeError, ConfigError) as error:
                raise ConfigError(f"faults, entry {number}: {name}: {error}") from error

    def _verbs(self) -> tuple[Callable[..., Fault], ...]:
        return self.inject_error, self.disconnect_on, self.delay_on, self.blackhole_client, self.throttle

    def _add(self, effect: Effect, api: str | int | None, which: Mapping[str, Any], **more: Any) -> Fault:
        unknown = set(which) - set(_CHOICES)
        if unknown:
            raise ConfigError(f"there is no choice {min(unknown)}; there are client_id, topic, count and probability")
        for name, value in which.items():
            kind, words = _CHOICES[name]
            if value is not None:
                _check_kind(name, value, kind, words)
        fault = Fault(effect, api_number(api), **which, **more)
        if fault.count is not None and fault.count < 1:
            raise ConfigError(f"count must be at least 1, or None, not {fault.count}")
        if not 0 < fault.probability <= 1:
            raise ConfigError(f"probability must be above 0 and at most 1, not {fault.probability}")
        self._faults = [*self._faults, fault]
        self.is_armed = True
        return fault

    # -- meeting requests

    def take(
        self, api_key: int, client_id: str | None, request: Request, name_of: Callable[[UUID], str | None]
    ) -> Fault | None:
        """The fault that strikes this request, or None; to be called once for each.

        Args:
            api_key: Kafka's number of the API.
            client_id: who asks.
            request: the message.
            name_of: a topic's name by its id.
        """
        for fault in self._faults:
            if fault.api_key not in {None, api_key} or fault.client_id not in {None, client_id}:
                continue
            if fault.topic is not None and fault.topic not in set(_topics(request, name_of)):
                continue
            if fault.probability < 1 and self._chance() >= fault.probability:
                continue
            fault.struck += 1
            if fault.count is not None:
                fault.count -= 1
                if fault.count <= 0:
                    self._faults = [other for other in self._faults if other is not fault]
                    self.is_armed = bool(self._faults)
            return fault
        return None


def api_number(api: str | int | None) -> int | None:
    """Kafka's number of an API, by its name or number; None for every API.

    Raises:
        ConfigError: there is no such API.
    """
    if isinstance(api, str):
        if api not in _BY_NAME:
            raise ConfigError(f"there is no API {api!r}; names are Kafka's, such as Produce, Fetch, Metadata")
        return _BY_NAME[api]
    if api is not None:
        _check_kind("api", api, int, "Kafka's name or number of an API")
    return api


def error_number(error: str | int) -> int:
    """Kafka's number of an error, by its name or number.

    Raises:
        ConfigError: there is no such error.
    """
    try:
        return int(ErrorCode[error]) if isinstance(error, str) else int(ErrorCode(error))
    except (KeyError, ValueError):
        raise ConfigError(f"there is no error {error!r}; names are Kafka's, such as NOT_LEADER_OR_FOLLOWER") from None


def _check_kind(name: str, value: object, kind: Any, words: str) -> None:
    """A file may say anything."""
    if not isinstance(value, kind):
        raise ConfigError(f"{name} must be {words}, not {value!r}")


def _milliseconds(name: str, value: int) -> int:
    _check_kind(name, value, int, "a whole number")
    if value < 1:
        raise ConfigError(f"{name} must be at least 1, not {value}")
    return value


def _topics(part: Struct, name_of: Callable[[UUID], str | None]) -> Iterator[str | None]:
    """Names of the topics that a request is about."""
    for spec in part.__fields__:
        value = getattr(part, spec.name)
        if isinstance(value, list):
            for one in value:
                if isinstance(one, Struct):
                    yield from _topics(one, name_of)
                elif spec.name in _TOPIC_LISTS and isinstance(one, str):
                    yield one
        elif spec.name in _TOPIC_FIELDS:
            yield name_of(value) if isinstance(value, UUID) else value
