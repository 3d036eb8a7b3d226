"""What breaks: networks, brokers, processes, clocks, disks."""

import os
import signal
import time
from collections.abc import Callable
from typing import Any

from kclient_quota.testing.proxies import Proxies

AFTER_S = 6.0
DOWN_S = 4.0
CUTS = 5
BETWEEN_CUTS_S = 3.137
"""Longer than librdkafka takes to begin anew from the bootstrap servers, and no whole number of its seconds."""
Fault = Callable[[Any, Proxies], list[float] | None]
"""Gives when it broke, each time; nothing if it is over, and counts from its end."""


def goes_on_s(done: list[float], broke: list[float], begun: list[float] | None = None) -> float:
    """How long, at the longest, until something was done that was begun after each of these times."""
    both = list(zip(done, done if begun is None else begun, strict=True))
    return max(min((at for at, since in both if since > each), default=float("inf")) - each for each in broke)


def cut_connections(cluster: Any, proxies: Proxies) -> list[float]:
    """Some cuts find librdkafka without any connection: it begins anew then, which takes 2 s; others do not."""
    broke = []
    for _ in range(CUTS):
        broke += cut_once(cluster, proxies)
        time.sleep(BETWEEN_CUTS_S)
    return broke


def cut_once(cluster: Any, proxies: Proxies) -> list[float]:
    broke = time.monotonic()
    proxies.each(lambda proxy: proxy.cut())
    return [broke]


def half_open_connections(cluster: Any, proxies: Proxies) -> list[float]:
    broke = time.monotonic()
    proxies.each(lambda proxy: proxy.half_open())
    return [broke]


def refuse_for_five_seconds(cluster: Any, proxies: Proxies) -> None:
    proxies.each(lambda proxy: proxy.refuse())
    proxies.each(lambda proxy: proxy.cut())
    time.sleep(5)
    proxies.each(lambda proxy: proxy.refuse(is_refusing=False))


def stall_for_ten_seconds(cluster: Any, proxies: Proxies) -> None:
    proxies.each(lambda proxy: proxy.stall())
    time.sleep(10)
    proxies.each(lambda proxy: proxy.resume())


def two_hundred_milliseconds_away(cluster: Any, proxies: Proxies) -> None:
    proxies.each(lambda proxy: proxy.delay(to_broker_ms=100, to_client_ms=100))


def stalls_of_one_in_a_hundred(cluster: Any, proxies: Proxies) -> None:
    proxies.each(lambda proxy: proxy.stall_some(0.01, 500))


def restart_a_broker(cluster: Any, proxies: Proxies) -> None:
    cluster.stop_broker(2)
    time.sleep(4)
    cluster.start_broker(2)


def roll_all_brokers(cluster: Any, proxies: Proxies) -> None:
    for broker in (1, 2, 3):
        cluster.stop_broker(broker)
        cluster.start_broker(broker)
        time.sleep(2)


def kill_a_broker(cluster: Any, proxies: Proxies) -> None:
    cluster.kill_broker(2)
    time.sleep(4)
    cluster.start_broker(2)


def kill_the_controller(cluster: Any, proxies: Proxies) -> None:
    """The first broker leads partitions as well."""
    cluster.kill_broker(1)
    time.sleep(4)
    cluster.start_broker(1)


def twenty_milliseconds_away(cluster: Any, proxies: Proxies) -> None:
    proxies.each(lambda proxy: proxy.delay(to_broker_ms=10, to_client_ms=10))


def _clock_jumps_by(seconds: float) -> None:
    real = time.time
    time.time = lambda: real() + seconds
    try:
        time.sleep(AFTER_S)
    finally:
        time.time = real


def clock_an_hour_ahead(cluster: Any, proxies: Proxies) -> None:
    """Of this process, so of both clients as far as they are Python; librdkafka goes by the monotonic clock."""
    _clock_jumps_by(3600)


def clock_an_hour_back(cluster: Any, proxies: Proxies) -> None:
    _clock_jumps_by(-3600)


def _stopped(cluster: Any, seconds: float) -> None:
    for process in cluster.processes:
        os.kill(process, signal.SIGSTOP)
    try:
        time.sleep(seconds)
    finally:
        for process in cluster.processes:
            os.kill(process, signal.SIGCONT)


def stop_the_processes_for_ten_seconds(cluster: Any, proxies: Proxies) -> None:
    _stopped(cluster, 10)


def stop_the_processes_for_ninety_seconds(cluster: Any, proxies: Proxies) -> None:
    _stopped(cluster, 90)


def kill_all_brokers(cluster: Any, proxies: Proxies) -> None:
    cluster.kill_all()
    time.sleep(DOWN_S)
    cluster.start_all()


def fill_the_disk(cluster: Any, proxies: Proxies) -> None:
    """For five seconds; the brokers stay."""
    cluster.fill_disk()
    time.sleep(5)
    cluster.free_disk()


EVERYWHERE = [
    cut_connections,
    half_open_connections,
    refuse_for_five_seconds,
    stall_for_ten_seconds,
    twenty_milliseconds_away,
    two_hundred_milliseconds_away,
    stalls_of_one_in_a_hundred,
    restart_a_broker,
    roll_all_brokers,
    clock_an_hour_ahead,
    clock_an_hour_back,
    stop_the_processes_for_ten_seconds,
    stop_the_processes_for_ninety_seconds,
    kill_all_brokers,
]
FAULTS: dict[str, list[Fault]] = {
    # the embedded brokers are one process: one of them cannot be killed alone
    "embedded": [*EVERYWHERE, fill_the_disk],
    # Apache Kafka halts on a full disk
    "Apache": [*EVERYWHERE, kill_a_broker, kill_the_controller],
}
