"""Rows for how many connections an address may open per second (KIP-612)."""

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from threading import Event
from typing import Final, NamedTuple

from kclient_quota.certify.brokers.probe import Probe
from kclient_quota.certify.brokers.row import Row
from kclient_quota.certify.brokers.talker import Talker
from kclient_quota.certify.verdict import Verdict, failed, passed
from kclient_quota.errors import ClusterError
from kclient_quota.quota.entity import DEFAULT, IP

_RATE: Final = 3.0
_WIDE: Final = 100_000.0
_FORGOTTEN_S: Final = 12.5
"""After so long a broker has forgotten every connection, by Kafka's windows."""
_CROWD: Final = 12
"""Who try at once, about once a second each: far more than the rate."""
_LATE_MS: Final = 10_000
"""Kafka looks twice a second for connections that are to be closed; a busy machine sees it later still."""


class _Opened(NamedTuple):
    """What came of opening connections until one was not served.

    Attributes:
        served: those that were, still open.
        took_ms: all of that, without the last.
        ended_ms: after how long the last one was closed, None if none was.
    """

    served: list[Talker]
    took_ms: float
    ended_ms: float | None


def _until_refused(probe: Probe, most: int) -> _Opened:
    begin = time.monotonic()
    served: list[Talker] = []
    while len(served) < most:
        started = time.monotonic()
        try:
            served.append(probe.talker())
        except ClusterError:
            return _Opened(served, (started - begin) * 1000, (time.monotonic() - started) * 1000)
    return _Opened(served, (time.monotonic() - begin) * 1000, None)


def _limited(probe: Probe, rate: float = _RATE) -> int:
    """Hold the own address to a rate; how many connections may then be open at once."""
    probe.set_quota({IP: probe.address()}, connection_creation_rate=rate)
    return int(rate * probe.window().whole_ms / 1000)


def _burst(probe: Probe) -> Verdict:
    burst = _limited(probe)
    for _ in range(2):
        opened = _until_refused(probe, 4 * burst)
        count = len(opened.served)
        # the window grows while they come, and the question whether the quota is known has taken one
        most = burst + opened.took_ms / 1000 * _RATE + 1
        if burst - 2 <= count:
            break
        time.sleep(_FORGOTTEN_S)  # somebody at this address has opened connections just before
    why = f"{count} connections were served in {opened.took_ms:.0f} ms; a window's worth is {burst}"
    return passed(why) if burst - 2 <= count <= most else failed(why)


def _refused(probe: Probe) -> Verdict:
    opened = _until_refused(probe, 4 * _limited(probe))
    if opened.ended_ms is None:
        return failed(f"{len(opened.served)} connections were all served")
    most_ms = probe.window().sample_ms + _LATE_MS
    why = f"after {len(opened.served)} connections the next was closed, unserved, after {opened.ended_ms:.0f} ms"
    return passed(why) if 0 < opened.ended_ms <= most_ms else failed(why)


def _others_stay(probe: Probe) -> Verdict:
    before = probe.talker()
    opened = _until_refused(probe, 4 * _limited(probe))
    if opened.ended_ms is None:
        return failed(f"{len(opened.served)} connections were all served")
    for talker in (before, *opened.served):
        throttle_ms = talker.idle().throttle_ms
        if throttle_ms:
            return failed(f"an open connection was throttled for {throttle_ms} ms")
    return passed(f"{len(opened.served) + 1} open connections were answered")


def _not_counted(probe: Probe) -> Verdict:
    # twice the rate of the other rows, so that their connections alone do not exceed it
    opened = _until_refused(probe, 8 * _limited(probe, 2 * _RATE))
    if opened.ended_ms is None:
        return failed(f"{len(opened.served)} connections were all served")
    begin, is_served = time.monotonic(), Event()

    def try_on() -> int:
        tries = 0
        while not is_served.is_set() and time.monotonic() < begin + _FORGOTTEN_S:
            tries += 1
            with suppress(ClusterError):
                probe.talker()
                is_served.set()
        return tries

    with ThreadPoolExecutor(_CROWD) as crowd:
        tries = sum(crowd.map(lambda _: try_on(), range(_CROWD)))
    why = f"of {tries} further ones the first was served after {time.monotonic() - begin:.1f} s"
    return passed(why) if is_served.is_set() else failed(f"of {tries} further ones none was served")


def _own_before_any(probe: Probe) -> Verdict:
    burst = _limited(probe, _WIDE)
    probe.set_quota({IP: DEFAULT}, connection_creation_rate=_RATE)
    burst = int(_RATE * probe.window().whole_ms / 1000)
    wide = _until_refused(probe, burst + 10)
    probe.set_quota({IP: DEFAULT}, connection_creation_rate=_WIDE)
    probe.set_quota({IP: probe.address()}, connection_creation_rate=_RATE)
    tight = _until_refused(probe, burst + 10)
    why = f"{len(wide.served)} served where the address's own is wide, {len(tight.served)} where it is tight"
    return passed(why) if wide.ended_ms is None and tight.ended_ms is not None else failed(why)


def _any(probe: Probe) -> Verdict:
    probe.set_quota({IP: DEFAULT}, connection_creation_rate=_RATE)
    most = 4 * int(_RATE * probe.window().whole_ms / 1000)
    opened = _until_refused(probe, most)
    why = f"{len(opened.served)} of {most} connections were served"
    return failed(why) if opened.ended_ms is None else passed(why)


_KIP_612: Final = "KIP-612, Proposed Changes: IP connection rate limit"

_ROWS = (
    Row(
        "connections-burst",
        "An address may open a whole window's worth of connections at once.",
        f"{_KIP_612}; Kafka, ConnectionQuotas",
        _burst,
    ),
    Row(
        "connections-refused",
        "The next is not served, and closed after a delay of a sample at most.",
        _KIP_612,
        _refused,
    ),
    Row("connections-open-ones", "Connections that are there are not affected.", _KIP_612, _others_stay),
    Row(
        "connections-not-counted",
        "What was refused is not counted: some are served again soon, however many come.",
        "Kafka, ConnectionQuotas.recordIpConnectionMaybeThrottle",
        _not_counted,
    ),
    Row("connections-any-address", "A quota of the default address holds for each.", "KIP-612, ip defaults", _any),
    Row(
        "connections-own-address",
        "An address's own quota comes before the default.",
        "KIP-612, ip defaults",
        _own_before_any,
    ),
)

ROWS = tuple(replace(row, alone=True) for row in _ROWS)
"""One at a time: they share an address."""
