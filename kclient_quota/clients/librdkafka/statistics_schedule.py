"""How often librdkafka tells statistics: as often as we need, and the user no more often than they asked for."""

import logging
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from kclient_quota.clock import Clock
from kclient_quota.config import client_id_of, whole_number

logger = logging.getLogger("kclient_quota")

KEY: Final = "statistics.interval.ms"
OLD_MS: Final = 60_000
"""What was told longer ago is of no use: metrics are of two windows of 30 seconds."""
_WANTED_MS: Final = 1_000
_LONGEST_MS: Final = 86_400_000
_NAME_BYTES: Final = 127
"""What librdkafka keeps of a client's name, which begins with its `client.id`."""
_ROOM_BYTES: Final = 16_384
"""A `client.id` that librdkafka's statistics have room for: what they are written into is doubled once, to 20 kB."""
_AGE_US: Final = re.compile(r'"age":\s*(\d+)')


def schedule(conf: Mapping[str, Any], ours_ms: int, clock: Clock) -> tuple[Any, Callable[[str], Any] | None]:
    """Reconcile the user's wish with ours.

    Args:
        conf: the user's, with `stats_cb` and `statistics.interval.ms` if they want statistics.
        ours_ms: how often we do.
        clock: tells when the user's next turn is.

    Returns:
        `statistics.interval.ms` for librdkafka, and what tells the user, or None where they do not want to be told.
    """
    theirs_ms = whole_number(conf, [KEY], -1 if KEY in conf else 0)
    if not 0 <= theirs_ms <= _LONGEST_MS:
        return conf[KEY], conf.get("stats_cb")  # for librdkafka to refuse
    if not told_ms(conf, ours_ms):
        _say_that_there_are_none()
        return 0, None
    if not theirs_ms or not callable(conf.get("stats_cb")):
        return ours_ms, None
    period_ms = min(theirs_ms, ours_ms)
    return period_ms, _every(theirs_ms if theirs_ms > period_ms else 0, conf["stats_cb"], clock)


def told_ms(conf: Mapping[str, Any], ours_ms: int) -> int:
    """`statistics.interval.ms` for librdkafka: never, where they would end the process.

    They have the client's name in them, and confluent_kafka, which cannot decode one that is cut within a character,
    ends the process with a segmentation fault. And librdkafka writes them beyond its memory where the `client.id` is
    very long. Plain confluent_kafka's clients do so as well, but only who asks for statistics has any.

    Args:
        conf: with `client.id`.
        ours_ms: how often otherwise.
    """
    try:
        client_id = client_id_of(conf).encode()
        client_id[:_NAME_BYTES].decode()
    except UnicodeEncodeError:  # confluent_kafka refuses it
        return ours_ms
    except UnicodeDecodeError:
        return 0
    return ours_ms if len(client_id) <= _ROOM_BYTES else 0


def over(conf: Mapping[str, Any], clock: Clock, *, wanted: bool) -> tuple[dict[str, Any], Callable[[str], Any] | None]:
    """What to put over a configuration, and what tells the user.

    Args:
        conf: the user's.
        clock: tells when the user's next turn is.
        wanted: whether we want statistics, every second; if not there are theirs, unless those would end the process.
    """
    if wanted:
        period_ms, theirs = schedule(conf, _WANTED_MS, clock)
        return {KEY: period_ms}, theirs
    if not whole_number(conf, [KEY], 0) or told_ms(conf, 1):
        return {}, conf.get("stats_cb")
    _say_that_there_are_none()
    return {KEY: 0}, conf.get("stats_cb")


def _say_that_there_are_none() -> None:
    logger.warning(
        "librdkafka's statistics are switched off: with a client.id as long as this one they would end the process; "
        "one of at most 127 bytes has them"
    )


def _every(period_ms: int, call: Callable[[str], Any], clock: Clock) -> Callable[[str], None]:
    """`call`, but not more often than every `period_ms`."""
    due_ms = clock.now_ms() + period_ms

    def maybe(text: str) -> None:
        nonlocal due_ms
        now_ms = clock.now_ms()
        if now_ms >= due_ms:
            due_ms = max(due_ms + period_ms, now_ms)
            call(text)

    return maybe


def unless_old(hear: Callable[[str], None], clock: Clock) -> Callable[[str], None]:
    """`hear`, but not of what nobody has polled for in a minute: the next event has the same totals, and more.

    To read all that has piled up overnight would keep a `poll(0)` for seconds. Librdkafka's client is made now.
    """
    born_ms = clock.now_ms()

    def maybe(text: str) -> None:
        age_us = _AGE_US.search(text)
        if age_us is None or clock.now_ms() - born_ms - int(age_us[1]) // 1000 < OLD_MS:
            hear(text)

    return maybe
