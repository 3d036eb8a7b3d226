"""Where a client's limit comes from: by hand, a ClientQuotaCallback, the cluster, or nobody (then it is learnt)."""

import logging
import random
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import inf, nan
from typing import TYPE_CHECKING, Any

from kclient_quota.clients.calls import Bell, has_started
from kclient_quota.clients.interceptor import instantiate
from kclient_quota.config import (
    DEFAULT_CLIENT_ID,
    LimitSource,
    QuotaConfig,
    as_read,
    client_id_of,
    sasl_mechanism,
    security_protocol,
    user_of,
    whole_number,
    without_callbacks,
)
from kclient_quota.errors import ConfigError, KclientQuotaError
from kclient_quota.quota.callback import QUOTA_TYPE_OF_KEY, ClientQuotaCallback, ClientQuotaType

if TYPE_CHECKING:
    from kclient_quota.cluster.asking import Asking
    from kclient_quota.cluster.limits import EffectiveLimits

logger = logging.getLogger("kclient_quota")

REFRESH_MS = 60_000
JITTER = 0.8, 1.2
FRESH_PART = 1 / 6  # of a minute: who looks again takes what another client of this process was told in it
CHANGED_MS = 1_000  # who has seen it change looks again after so long beside the usual; then after twice that
AGAIN_MS = 100  # what the cluster has not answered in time is asked again
CALLBACK_PERIOD_MS = 1_000
ASK_DEADLINE_MS = 1_000  # how long a client's constructor waits for the cluster
ASK_AT_LEISURE_MS = 30_000  # how long a watch does: of some ten answers in turn, a busy broker takes 3 s for each
ASKS_AS = "kclient-quota"  # the client.id of questions, which would use up the client's own request quota, and wait
MIN_REFRESH_MS = 5_000  # a throttle that contradicts the limit asks for it anew, but not more often
REQUEST_S = 0.02  # of a broker's thread that a request may take: of one that has just begun, or is busy
REST_S = 1.1  # a connection on which nobody asks is let go after so long, a little more than `asking.REST_MS`
SOCKET_TIMEOUT_MS = 60_000
_random = random.Random()  # noqa: S311 - nothing secret, and the application's own random numbers stay as they are


@dataclass(frozen=True, slots=True)
class Limit:
    """What one client may move through each broker.

    Attributes:
        byte_rate: bytes per second and broker; None where nothing limits it, or where it is not known.
        request_percentage: percent of one broker thread; None as above.
        source: who said so; LEARNED means that nobody did and throttle times must teach it.
        decided_by: the quota entry that decided, in words, where the cluster said so.
        samples: `quota.window.num` of the brokers.
        window_ms: `quota.window.size.seconds` of the brokers, in milliseconds.
    """

    byte_rate: float | None
    request_percentage: float | None
    source: LimitSource
    decided_by: str | None = None
    samples: int = 11
    window_ms: int = 1_000

    @property
    def known(self) -> bool:
        """Whether somebody said what applies, if only that nothing does."""
        return self.source is not LimitSource.LEARNED

    @property
    def unlimited(self) -> bool:
        """Whether it is known that no quota applies."""
        return self.frees_bytes and self.request_percentage is None

    @property
    def frees_bytes(self) -> bool:
        """Whether it is known that nothing limits bytes."""
        return self.known and self.byte_rate is None

    @property
    def only_requests(self) -> bool:
        """Whether requests are limited, by all that is known, and not bytes."""
        return self.byte_rate is None and self.request_percentage is not None

    def is_of_requests(self, throttle_ms: int, requests_per_s: float = 0.0) -> bool:
        """Whether a throttle is of requests, by all that is known: those are no longer than a window (KIP-124).

        Beside a quota of bytes it is, where it is cut to a window, or so many requests may have used up that of them.
        """
        if self.request_percentage is None or not self.known or throttle_ms > self.window_ms:
            return False
        is_cut = throttle_ms == self.window_ms
        return self.frees_bytes or is_cut or requests_per_s * REQUEST_S * 100 >= self.request_percentage


UNKNOWN = Limit(None, None, LimitSource.LEARNED)


def longest_throttle_ms(conf: Mapping[str, Any], limit: Limit, message_ms: float = inf) -> int:
    """For how long a throttle counts at most.

    A broker may say hours, where a quota was set too low, by mistake and for seconds maybe. It reads nothing more from
    this connection until then. But librdkafka takes another one when a request is not answered within
    `socket.timeout.ms`, or what its first message has left of `message_ms`; and after a window the broker has forgotten
    what it throttles for. A tenth earlier, so that who waits for `max.block.ms`, as long by default, does not give up
    at the last moment. A transaction needs all of its messages, and waits for a throttle that they would not outlive.
    """
    socket_ms = whole_number(conf, ["socket.timeout.ms"], SOCKET_TIMEOUT_MS)
    answer_ms = socket_ms if "transactional.id" in conf else min(socket_ms, message_ms)
    return max(int(answer_ms * 9 / 10), (limit.samples - 1) * limit.window_ms)


class _AskCluster:
    """Asks by way of what all clients share that ask this cluster as this principal, and keeps it.

    Never raises, and answers within the deadline, or with what was said no longer than `fresh_ms` ago.
    """

    _asking: "Asking | None" = None

    def __call__(
        self, conf: Mapping[str, Any], user: str | None, client_id: str, deadline_ms: int, *, fresh_ms: int
    ) -> "EffectiveLimits":
        # its connection, wire format and TLS are loaded by those who ask, not by everybody who imports a client
        from kclient_quota.cluster.asking import asking  # noqa: PLC0415
        from kclient_quota.cluster.limits import EffectiveLimits  # noqa: PLC0415

        try:
            found = self._asking = asking(conf)
        except KclientQuotaError as error:
            return EffectiveLimits(denied=str(error))
        return found.limits(user, client_id, deadline_ms, fresh_ms=fresh_ms)

    def rest(self) -> None:
        """Let its connection go while nobody asks."""
        if self._asking is not None:
            self._asking.rest()

    def close(self) -> None:
        """Keep it no longer."""
        if self._asking is not None:
            self._asking.hang_up()  # here: its finalizer would swallow a Ctrl-C
        self._asking = None


class LimitFinder:
    """Finds the limit of one client; blocking, no thread of its own.

    Args:
        ours: the client's checked configuration.
        conf: its librdkafka configuration, with which the cluster is asked.
        byte_rate_key: PRODUCER_BYTE_RATE or CONSUMER_BYTE_RATE.
        ask: how the cluster is asked, as `_AskCluster` does; None: by that.

    Attributes:
        conf: with what it asks; whoever logs in as somebody else renews it.
        found: what is known: an unanswered question changes nothing.
        is_away: whether the cluster has not answered the last question.

    Raises:
        ConfigError: client.quota.callback.class cannot be loaded.
    """

    def __init__(
        self,
        ours: QuotaConfig,
        conf: Mapping[str, Any],
        *,
        byte_rate_key: str,
        ask: "Callable[..., EffectiveLimits] | None" = None,
    ) -> None:
        self._ours = ours
        self.conf = without_callbacks(conf)
        self._byte_rate_key = byte_rate_key
        self._quota_types = (QUOTA_TYPE_OF_KEY[byte_rate_key], ClientQuotaType.REQUEST)
        self._callback = _load_callback(ours.callback, conf)
        shared = _AskCluster()
        self._ask = ask or shared
        self.close, self.rest = shared.close, shared.rest
        self._said_denied = False
        self.found = UNKNOWN
        self.is_away = False

    def find(self, deadline_ms: int | None = None, *, fresh_ms: int = 0) -> Limit:
        """The limit as it stands now, or `fresh_ms` ago.

        Takes up to `deadline_ms` when the cluster is asked; None: as long as a client's constructor waits.
        """
        found = self._find(deadline_ms, fresh_ms)
        if found.known:
            self.found = found
        return found

    def _find(self, deadline_ms: int | None, fresh_ms: int) -> Limit:
        deadline_ms = ASK_DEADLINE_MS if deadline_ms is None else deadline_ms
        source = self._ours.limit_source
        by_hand, percentage = getattr(self._ours, self._byte_rate_key), self._ours.request_percentage
        if by_hand is not None:
            return Limit(by_hand, percentage, LimitSource.CONFIG)
        found = UNKNOWN
        if self._callback is not None:
            found = self._of_callback(self._callback)
        elif source not in {LimitSource.LEARNED, LimitSource.CONFIG}:
            found = self._of_cluster(deadline_ms, fresh_ms)
        return found if percentage is None else replace(found, request_percentage=percentage)

    @property
    def may_change(self) -> bool:
        """Whether somebody can be asked again: what was given by hand stays, what is learnt is told by throttles."""
        if getattr(self._ours, self._byte_rate_key) is not None:
            return False
        return self._callback is not None or self._ours.limit_source not in {LimitSource.LEARNED, LimitSource.CONFIG}

    @property
    def has_callback(self) -> bool:
        """Whether a ClientQuotaCallback decides."""
        return self._callback is not None

    def due(self, *, asked: bool) -> bool:
        """Whether it is time to find anew: a callback says itself when, a cluster has to be asked."""
        if self._callback is None:
            return True
        return asked or any(map(self._callback.quota_reset_required, self._quota_types))

    def _of_callback(self, callback: ClientQuotaCallback) -> Limit:
        user, client_id = self._principal() or "", client_id_of(self.conf)
        rate, percentage = (
            _told(callback.quota_limit(kind, callback.quota_metric_tags(kind, user, client_id)))
            for kind in self._quota_types
        )
        return Limit(rate, percentage, LimitSource.CALLBACK)

    def _of_cluster(self, deadline_ms: int, fresh_ms: int) -> Limit:
        user = self._principal()
        if user is None and _principal_is_hidden(self.conf):
            return UNKNOWN
        conf = {**self.conf, "client.id": ASKS_AS}
        answer = self._ask(conf, user, client_id_of(self.conf), deadline_ms, fresh_ms=fresh_ms)
        self.is_away = answer.is_away
        if answer.denied is not None:
            self._say_denied(answer.denied)
            return UNKNOWN
        self._said_denied = False
        rate = getattr(answer, self._byte_rate_key)
        return Limit(
            rate, answer.request_percentage, LimitSource.CLUSTER, answer.decided_by, answer.samples, answer.window_ms
        )

    def _say_denied(self, why: str) -> None:
        """Once, until the cluster tells again."""
        if self._said_denied:
            return
        self._said_denied = True
        if self.found.known:
            logger.info("The quota of this client could not be asked for again, and stays as it is: %s", why)
        else:
            logger.info("The quota of this client is learnt from throttle times: %s", why)

    def _principal(self) -> str | None:
        return self._ours.user or user_of(self.conf)


def _load_callback(declared: Any, conf: Mapping[str, Any]) -> ClientQuotaCallback | None:
    if declared is None:
        return None
    key = "client.quota.callback.class"
    callback = instantiate(declared, key)
    if not isinstance(callback, ClientQuotaCallback):
        raise ConfigError(f"{key}: {declared!r} is no ClientQuotaCallback: subclass kclient_quota.ClientQuotaCallback")
    callback.configure(conf)
    return callback


def _told(limit: Any) -> float | None:
    """What a callback says applies; without an end is without a limit."""
    if limit is None:
        return None
    try:
        number = float(limit)
    except (TypeError, ValueError):
        number = nan
    if not number > 0:
        raise ConfigError(
            f"client.quota.callback.class: quota_limit() has returned {limit!r}: a limit is greater than 0, and None "
            "is no limit"
        )
    return None if number == inf else number


def _principal_is_hidden(conf: Mapping[str, Any]) -> bool:
    """Whether the broker derives the user from a certificate or a token, so that we cannot know its name."""
    protocol = security_protocol(conf)
    if "sasl" in protocol:
        return sasl_mechanism(conf) == "OAUTHBEARER"
    return protocol == "ssl" and any(as_read(conf, key) for key in conf if str(key).startswith("ssl.certificate"))


class LimitWatch:
    """Keeps asking, once a minute and when told to, in a daemon thread that never keeps a process alive.

    Args:
        finder: what to ask.
        on_limit: called in the watch's own thread with every limit that is known; must not block.
        on_time: called there each time, likewise; where it does not `asks`, that is all.
    """

    def __init__(
        self,
        finder: LimitFinder,
        on_limit: Callable[[Limit], None],
        on_time: Callable[[], Any] = int,
        asks: bool = True,
    ) -> None:
        self._finder = finder
        self._on_limit, self._on_time, self._asks = on_limit, on_time, asks
        # No events: who is interrupted within `set()`, by a signal's handler that throttles or closes, keeps its lock.
        self._wake, self._end = Bell(), Bell()
        self._is_asked = self._stops = False
        self._has_failed = False
        self._longest_ms = CALLBACK_PERIOD_MS if finder.has_callback else REFRESH_MS
        self._period_ms = AGAIN_MS if finder.is_away else self._longest_ms
        self._thread = threading.Thread(target=self._run, name="kclient-quota-limit", daemon=True)

    def start(self) -> None:
        """Begin; the first question comes after a minute, or soon if the client's constructor was not answered."""
        has_started(self._thread.start, "ask for a client's quota again")

    def ask_soon(self, *, anew: bool = True) -> None:
        """Ask within seconds; `anew`: a throttle contradicted what is known, or the principal is another."""
        self._is_asked |= anew
        self._wake.ring()

    def close(self) -> None:
        """Stop; the thread ends soon, which is not waited for."""
        self._stops = True
        self._wake.ring()
        self._end.ring()
        self._finder.close()

    def check(self, *, asked: bool) -> bool:
        """Tell what applies now, if it is time to, or `asked` to; whether anybody was asked."""
        before = self._finder.found
        period_ms = self._period_ms if before.known else self._longest_ms  # all that wait for a slow answer take that
        fresh_ms = 0 if asked else int(period_ms * FRESH_PART)
        self._period_ms = min(2 * self._period_ms, self._longest_ms)
        try:
            if not self._finder.due(asked=asked):
                return False
            limit = self._finder.find(ASK_AT_LEISURE_MS, fresh_ms=fresh_ms)
        except BaseException:  # an application's callback may raise anything, and must not end the thread that asks it
            if not self._has_failed:
                logger.exception("The quota could not be asked for; what was known before still holds")
            self._has_failed = True
            return True
        self._has_failed = False
        if limit.known:
            if limit != before:  # it may do so again, as where somebody is trying what is right; not the first one
                self._period_ms = min(CHANGED_MS, self._longest_ms) if before.known else self._longest_ms
            self._on_limit(limit)
        return True

    def _run(self) -> None:
        while True:
            self._sleep()
            if self._stops:
                return
            self._on_time()
            asked, self._is_asked = self._is_asked, False  # who asks from now on is to have another answer
            if self._asks and self.check(asked=asked):
                # A broker that throttles again and again must not be asked again and again.
                rest_ms = CHANGED_MS if self._finder.is_away else MIN_REFRESH_MS
                self._end.wait(0 if self._finder.has_callback else rest_ms / 1000)

    def _sleep(self) -> None:
        # A fleet that was started at once must not ask in step.
        sleep_s = self._period_ms / 1000 * _random.uniform(*JITTER)
        if sleep_s > REST_S:
            self._wake.wait(REST_S)
            if self._is_asked or self._stops:
                return
            self._finder.rest()
            sleep_s -= REST_S
        self._wake.wait(sleep_s)


def warn_of_default_client_id(conf: Mapping[str, Any], limit: Limit) -> None:
    """Say so when a client-id quota applies to everybody who never chose a client.id."""
    by_client_id = limit.byte_rate is not None and limit.decided_by is not None and "client-id" in limit.decided_by
    if by_client_id and client_id_of(conf) == DEFAULT_CLIENT_ID:
        logger.warning(
            "client.id is librdkafka's default, %r, and a client-id quota applies (%s): all clients that have not "
            "chosen one share it; set client.id",
            DEFAULT_CLIENT_ID,
            limit.decided_by,
        )
