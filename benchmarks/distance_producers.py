"""`python -m benchmarks.distance_producers`: producers at a distance without a quota, beside plain ones.

A broker of its own process stands behind a proxy that delays. Each client sends messages of 1 kB over four partitions,
as many as it can and then 1,000 a second, in a process of its own: with the default settings, and with those that ours
sets where a quota may apply, of which `enable.idempotence` makes the difference. MB/s delivered, and the processors
that the client's process uses. One round is noise where all that the machine can is asked for, since client, proxy and
broker share it: the clients take turns `--rounds` times, and medians are shown, with the least and the largest part of
what plain's had in the same round.
"""

import argparse
import json
import statistics
import sys
import time
from typing import Any

from benchmarks.processes import spawned

MODULE = "benchmarks.distance_producers"
TOPIC = "distance"
PARTITIONS = 4
MESSAGE = b"x" * 1_000
OUR_SETTINGS = {"enable.idempotence": True, "linger.ms": 10}
KINDS = {
    "plain": ("plain", {}),
    "plain, our settings": ("plain", OUR_SETTINGS),
    "ours": ("ours", {}),
    "ours, idempotent": ("ours", OUR_SETTINGS),
}
WARM_S = 2.0


def main() -> int:
    """Prints a line a cell."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.distance_producers", description=__doc__)
    parser.add_argument("--rtt", type=int, nargs="+", default=[0, 2, 20, 80], help="round trips, ms")
    parser.add_argument("--rate", type=int, nargs="+", default=[0, 1_000], help="messages a second; 0: all it can")
    parser.add_argument("--seconds", type=float, default=6.0)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS), help="`plain` is always among them")
    parser.add_argument("--host", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--client", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.host is not None:
        _host(options.host)
    elif options.client is not None:
        servers, name, rate = options.client
        _client(servers, *KINDS[name], int(rate), options.seconds)
    else:
        _compare(options)
    return 0


def _compare(options: argparse.Namespace) -> None:
    print("round trip  messages/s  client                   MB/s  of plain               processors", flush=True)
    for rtt_ms in options.rtt:
        with spawned(MODULE, "--host", str(rtt_ms)) as host:
            assert host.stdout is not None
            assert host.stdin is not None
            servers = host.stdout.readline().strip()
            for rate in options.rate:
                offered = f"{rate:,}" if rate else "all"
                for name, rounds in _rounds(options, servers, rate).items():
                    mb_s, parts, processors = map(statistics.median, zip(*rounds, strict=True))
                    every = [part for _, part, _ in rounds]
                    cells = f"{mb_s:>6.1f} {parts:>9.2f} ({min(every):.2f} to {max(every):.2f}) {processors:>11.2f}"
                    print(f"{rtt_ms:>7} ms  {offered:>10}  {name:<22} {cells}", flush=True)
            host.stdin.close()


def _rounds(options: argparse.Namespace, servers: str, rate: int) -> dict[str, list[tuple[float, float, float]]]:
    """MB/s, the part of what plain's has in the same round, and processors; every other round goes backwards."""
    names = [name for name in KINDS if name == "plain" or name in options.kinds]
    found: dict[str, list[tuple[float, float, float]]] = {name: [] for name in names}
    for turn in range(options.rounds):
        told = {}
        for name in names if turn % 2 == 0 else names[::-1]:
            arguments = ("--client", servers, name, str(rate), "--seconds", str(options.seconds))
            with spawned(MODULE, *arguments) as child:
                out, _ = child.communicate(timeout=120)
            told[name] = json.loads(out)
        for name, (mb_s, processors) in told.items():
            found[name].append((mb_s, mb_s / told["plain"][0], processors))
    return found


def _host(rtt_ms: int) -> None:
    from kclient_quota.broker import EmbeddedBroker  # noqa: PLC0415 - the parent needs none of these
    from kclient_quota.testing.proxies import Proxies  # noqa: PLC0415

    with Proxies(1) as proxies, EmbeddedBroker(topics={TOPIC: PARTITIONS}) as cluster:
        proxies.stand_before(cluster)
        proxies.each(lambda proxy: proxy.delay(to_broker_ms=rtt_ms / 2, to_client_ms=rtt_ms / 2))
        print(proxies.bootstrap_servers, flush=True)
        sys.stdin.read()


def _client(servers: str, whose: str, settings: dict[str, Any], rate: int, seconds: float) -> None:
    if whose == "plain":
        from confluent_kafka import Producer  # noqa: PLC0415
    else:
        from kclient_quota import Producer  # type: ignore[assignment] # noqa: PLC0415
    delivered = 0

    def report(error: Any, _message: Any) -> None:
        nonlocal delivered
        delivered += error is None

    conf = {"bootstrap.servers": servers, "client.id": "far", "enable.metrics.push": False, "log_level": 2}
    producer = Producer({**conf, **settings})
    producer.list_topics(timeout=30)
    begin, sent = time.monotonic(), 0
    since: tuple[float, int, float] | None = None
    while True:
        now = time.monotonic() - begin
        if since is None and now >= WARM_S:
            since = now, delivered, time.process_time()
        if now >= WARM_S + seconds:
            break
        if rate and sent >= now * rate:
            producer.poll(0.001)
            continue
        try:
            producer.produce(TOPIC, MESSAGE, partition=sent % PARTITIONS, on_delivery=report)
            sent += 1
            producer.poll(0)
        except BufferError:
            producer.poll(0.05)
    assert since is not None
    took_s = now - since[0]
    mb_s = (delivered - since[1]) * len(MESSAGE) / took_s / 1e6
    print(json.dumps([round(mb_s, 2), round((time.process_time() - since[2]) / took_s, 2)]), flush=True)
    producer.purge()


if __name__ == "__main__":
    sys.exit(main())
