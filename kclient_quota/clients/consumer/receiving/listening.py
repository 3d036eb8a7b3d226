"""What librdkafka says inside a poll, noted there and heard after it.

librdkafka calls back from within confluent_kafka's C code. A callback in Python is where a signal would be handled,
and what is raised there is kept until that poll ends, if ever. So our callbacks are `deque.append`, without a line of
Python, and what they have noted is heard by the poll that served them, in slices of a fifth of a second at most.
"""

import logging
import math
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from threading import get_ident
from typing import TYPE_CHECKING, Any, Final

from kclient_quota.clients.calls import refused_callbacks
from kclient_quota.clients.consumer.core import ConsumerCore
from kclient_quota.clients.consumer.receiving.told_statistics import ToldAsOne
from kclient_quota.clients.interceptor import ConsumerInterceptors
from kclient_quota.clients.librdkafka.statistics import decoded
from kclient_quota.clients.librdkafka.statistics_schedule import schedule
from kclient_quota.clients.throttle_log import ThrottleLog
from kclient_quota.clock import Clock

if TYPE_CHECKING:
    from kclient_quota.clients.telemetry.reporter import ClientTelemetry

logger = logging.getLogger("kclient_quota")

STATISTICS_MS: Final = 250
"""How often librdkafka tells while a limit is known or may be learnt."""
CALM_STATISTICS_MS: Final = 1_000
"""How often it tells while nothing limits."""
SILENT_MS: Final = 1_000


class Listener:
    """One consumer's ears; must not keep the consumer alive.

    Args:
        core: what decides.
        clock: monotonic milliseconds.
        log: a client's stretches of throttling.

    Attributes:
        telemetry: hears of statistics, too.
        ask_soon: has the limit asked for again.
        events: what has been noted and not heard.
        fetcher_events: what a second client has said that fetches in this one's place.
        is_split: whether there is one.
        told: the last statistics of whoever fetches, decoded.
        is_throttled: whether it has been told of a throttle, by whichever broker, and may be again.
        callback_thread: the thread in which a callback of the application's runs; 0: none.
    """

    def __init__(self, core: ConsumerCore, clock: Clock, log: ThrottleLog) -> None:
        self.core = core
        self.clock = clock
        self.telemetry: ClientTelemetry | None = None
        self.ask_soon: Callable[[], None] | None = None
        self.events: deque[Any] = deque()
        self.is_throttled = not core.limit.known
        self.callback_thread = 0
        self.fetcher_events: deque[Any] = deque()
        self.is_split = False
        self.told: Mapping[str, Any] = {}
        self._members: Mapping[str, Any] | None = {}  # the member's own, until nothing is on its way to it any more
        self._log = log
        self._told_as_one = ToldAsOne({})
        self._tell_statistics: Callable[[str], Any] | None = None
        self._tell_throttle: Callable[[Any], Any] | None = None

    def callbacks(self, conf: Mapping[str, Any], interceptors: ConsumerInterceptors) -> dict[str, Any]:
        """The user's `conf`, without our keys, with our callbacks in place of theirs, which are called afterwards."""
        out = dict(conf)
        ours_ms = CALM_STATISTICS_MS if self.core.limit.unlimited else STATISTICS_MS
        self._told_as_one = ToldAsOne(conf)
        theirs = conf.get("stats_cb")
        wanted = {**conf, "stats_cb": partial(self._told_as_one.tell, theirs)} if callable(theirs) else conf
        out["statistics.interval.ms"], self._tell_statistics = schedule(wanted, ours_ms, self.clock)
        self._tell_throttle = conf.get("throttle_cb")
        out["stats_cb"] = out["throttle_cb"] = self.events.append
        out.update(refused_callbacks(conf))
        if interceptors or callable(conf.get("on_commit")):
            out["on_commit"] = partial(self.keep, _on_commit, self, interceptors, conf.get("on_commit"))
        if callable(conf.get("error_cb")):
            out["error_cb"] = partial(self.keep, self.call_back, conf["error_cb"])
        if conf.get("logger") is not None:
            out["logger"] = _Logging(self, conf["logger"])
        return out

    def hear(self) -> bool:
        """Attend to everything noted; whether there were statistics. Raises what the application's callbacks raise."""
        had_statistics = False
        while self.fetcher_events:
            event = self.fetcher_events.popleft()
            if isinstance(event, str):
                self._attend(self._on_fetcher, event)
                had_statistics = True
            else:
                self._throttled(event, fetches=True)
        while self.events:
            event = self.events.popleft()
            if isinstance(event, BaseException):
                raise event
            if isinstance(event, str):
                had_statistics = True
                self._attend(self._on_statistics, event)
                if self._tell_statistics is not None:
                    self.call_back(self._tell_statistics, event)
            else:
                self._throttled(event, fetches=not self.is_split)
        return had_statistics

    def on_other_fetcher(self) -> None:
        """Another client fetches from now on: what is left of the one before, if there was one, says nothing of it."""
        self.events.extend(event for event in self.fetcher_events if not isinstance(event, str))
        self.fetcher_events.clear()
        self.is_split = True

    def keep(self, call: Callable[..., Any], *args: Any) -> None:
        """Call within librdkafka; what is raised is raised when that has returned.

        It ends a `consume()` in there otherwise, whose messages librdkafka loses: its close waits for them for ever.
        """
        try:
            call(*args)
        except BaseException as error:  # noqa: BLE001 - whatever it is
            self.events.append(error)

    def raise_kept(self) -> None:
        """The consumer is closed, and hears no more."""
        kept = [event for event in self.events if isinstance(event, BaseException)]
        self.events.clear()
        if kept:
            raise kept[-1]

    def call_back(self, call: Callable[..., Any], *args: Any) -> None:
        """Call the application."""
        before, self.callback_thread = self.callback_thread, get_ident()
        try:
            call(*args)
        finally:
            self.callback_thread = before

    @property
    def in_callback(self) -> bool:
        """Whether a callback of the application's runs, in which nothing may be taken out of the queue."""
        return self.callback_thread != 0

    def tell(self) -> None:
        """Say what the core wants to be said."""
        notices = self.core.notices
        while notices:
            notice = notices.pop(0)
            logger.log(
                logging.WARNING if notice.is_warning else logging.INFO, "%s", notice.text, extra=dict(notice.extra)
            )

    def _attend(self, handle: Callable[[Any], None], event: Any) -> None:
        try:
            handle(event)
        except (LookupError, TypeError, ValueError):
            # An event that we fail to understand must not take a message from the application. No more is caught: a
            # signal's handler may raise anything here.
            logger.exception("An event of librdkafka's could not be handled")

    def _on_statistics(self, text: str) -> None:
        now_ms = self.clock.now_ms()
        if self.is_split:
            self.core.heartbeat.on_poll(now_ms)
            if self._members is not None:
                self._note_late(self._members, decoded(text), now_ms)
        else:
            self.told = self._members = decoded(text)
            self.core.on_statistics(self.told, now_ms)
        self._log.on_time(now_ms)
        self.tell()
        if self.telemetry is not None:
            self.telemetry.on_event(lambda: self._told_as_one.counted(text) if self.is_split else self.told)

    def _note_late(self, before: Mapping[str, Any], told: Mapping[str, Any], now_ms: int) -> None:
        """The member has got what was on its way to it when the other client took over, or has not yet."""
        waits = False
        for name, broker in told.get("brokers", {}).items():
            if broker["source"] != "logical":
                nbytes = broker["rxbytes"] - before.get("brokers", {}).get(name, broker)["rxbytes"]
                self.core.on_late_fetch(broker["nodeid"], nbytes, now_ms)
                waits = waits or broker.get("waitresp_cnt", 0) > 0
        self._members = told if waits else None

    def _on_fetcher(self, text: str) -> None:
        self._told_as_one.fetcher = self.told = decoded(text)
        self.core.on_statistics(self.told, self.clock.now_ms())
        self.tell()

    def _throttled(self, event: Any, *, fetches: bool) -> None:
        self._attend(partial(self._on_throttle, fetches=fetches), event)
        if self._tell_throttle is not None:
            self.call_back(self._tell_throttle, event)

    def _on_throttle(self, event: Any, *, fetches: bool) -> None:
        now_ms = self.clock.now_ms()
        throttle_ms = round(event.throttle_time * 1000)
        self.core.on_throttle(event.broker_name, event.broker_id, throttle_ms, now_ms, fetches=fetches)
        if throttle_ms > 0:
            self.is_throttled = True
            self._log.on_throttle(event.broker_name, throttle_ms, self.core.limit, now_ms)
            if self.ask_soon is not None and self._log.asks(now_ms):
                self.ask_soon()
        self.tell()


class _Logging:
    """The application's logger, called within librdkafka; what a handler raises is kept, as by `Listener.keep()`.

    One error a second: lines that all fail would have each call raise, and none return a message. But what ends a
    process is never left out.
    """

    def __init__(self, listener: Listener, logger: Any) -> None:
        self._listener = listener
        self._logger = logger
        self._silent_until_ms = -math.inf

    def log(self, *args: Any) -> None:
        """One line of librdkafka's."""
        try:
            self._listener.call_back(self._logger.log, *args)
        except BaseException as error:  # noqa: BLE001 - whatever it is
            now_ms = self._listener.clock.now_ms()
            if now_ms >= self._silent_until_ms or not isinstance(error, Exception):
                self._silent_until_ms = now_ms + SILENT_MS
                self._listener.events.append(error)


def _on_commit(
    listener: Listener,
    interceptors: ConsumerInterceptors,
    theirs: Callable[[Any, Any], Any] | None,
    error: Any,
    offsets: Any,
) -> None:
    if error is None:
        interceptors.on_commit(offsets)
    if theirs is not None:
        listener.call_back(theirs, error, offsets)
