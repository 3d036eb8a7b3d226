"""`kclient-quota simulate`: many producers or consumers under one quota, in virtual time."""

import argparse
import json
import os
import random
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from math import inf
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final

from kclient_quota.cli.progress import progress
from kclient_quota.errors import ConfigError
from kclient_quota.simulation import (
    Change,
    DeliveryFigures,
    Figures,
    KindFigures,
    Network,
    Outcome,
    Part,
    Scenario,
    figures,
    parts,
    simulate,
)

DEFAULT_CLIENTS: Final = 8
LONG: Final = 1_000_000
"""From how many client-seconds on more than one process is worth its start."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `kclient-quota simulate`."""
    parser.add_argument("--brokers", type=int, default=1, metavar="B", help="brokers (default: %(default)s)")
    _add_client_arguments(parser)
    parser.add_argument(
        "--quota",
        type=float,
        default=1_048_576,
        metavar="T",
        help="bytes per second on each broker, for all producers together, and as many again for all consumers "
        "(default: 1 MiB)",
    )
    parser.add_argument("--message-bytes", type=int, default=1_000, metavar="BYTES", help="(default: %(default)s)")
    parser.add_argument(
        "--batch-messages",
        type=int,
        default=4,
        metavar="N",
        help="messages in each batch of the log that consumers read (default: %(default)s)",
    )
    parser.add_argument("--seconds", type=int, default=120, help="simulated time (default: %(default)s)")
    parser.add_argument("--warm-up", type=int, default=30, metavar="SECONDS", help="left out (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="the same seed gives the same figures (default: 1)")
    parser.add_argument(
        "--source",
        choices=("config", "learned"),
        default="config",
        help="whether clients know the quota, by hand or from the cluster, or learn it (default: %(default)s)",
    )
    parser.add_argument(
        "--learning",
        type=int,
        default=0,
        metavar="N",
        help="so many of the clients of the start learn the quota though all others know it; where producers and "
        "consumers are simulated, so many of each (default: 0)",
    )
    parser.add_argument(
        "--demand",
        type=float,
        action="append",
        metavar="RATE",
        help="bytes per second that each client has to send, or that come for it; again for more, which clients have "
        "in turn (default: inf, more than they may)",
    )
    parser.add_argument(
        "--leaders",
        type=_leaders,
        action="append",
        default=[],
        metavar="BROKER,...",
        help="leaders of a topic's partitions, as 0,1,2; again for more topics, to which clients go in turn "
        "(default: every client has one partition, clients go round the brokers)",
    )
    parser.add_argument(
        "--keyed", action="store_true", help="messages go round the partitions and wait for their leader"
    )
    parser.add_argument(
        "--arrivals",
        type=_change,
        action="append",
        default=[],
        metavar="SECOND:CLIENTS",
        help="more clients come, none of them plain; where producers and consumers are simulated, so many of each",
    )
    parser.add_argument(
        "--departures", type=_change, action="append", default=[], metavar="SECOND:CLIENTS", help="the oldest leave"
    )
    parser.add_argument("--round-trip-ms", type=int, default=2, help="(default: %(default)s)")
    parser.add_argument("--jitter-ms", type=int, default=1, help="added to each way at most (default: %(default)s)")
    parser.add_argument("--jobs", type=int, help="processes (default: one for each processor where it is worth it)")
    parser.add_argument("--plot", type=Path, metavar="FILE.svg", help="draw it (any format that matplotlib writes)")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")


def _add_client_arguments(parser: argparse.ArgumentParser) -> None:
    clients = parser.add_argument_group(
        "who", "Producers share one quota, consumers another; without any of these options: 8 producers."
    )
    clients.add_argument("--clients", type=int, metavar="N", help="producers of kclient-quota's")
    clients.add_argument(
        "--plain",
        type=int,
        default=0,
        metavar="N",
        help="plain producers beside them: librdkafka's, which send requests of up to 1 MB as fast as they are let and "
        "again when one has had no answer for 60 s",
    )
    clients.add_argument("--consumers", type=int, default=0, metavar="N", help="consumers of kclient-quota's")
    clients.add_argument(
        "--plain-consumers",
        type=int,
        default=0,
        metavar="N",
        help="plain consumers beside them: they fetch up to 1 MB from each broker, again and again",
    )


def run(options: argparse.Namespace) -> int:
    """Simulate, print, draw.

    Returns:
        the exit status.

    Raises:
        ConfigError: an option does not fit the others, or a plot was asked for and matplotlib is missing.
    """
    scenarios = _scenarios(options)
    if options.plot is not None:
        if len(scenarios) > 1:
            raise ConfigError("--plot draws producers or consumers: simulate either of them alone")
        _plotting()
    found = {}
    for name, scenario in scenarios.items():
        with progress(f"simulating {scenario.total_clients:,} {name} for {scenario.seconds:,} s") as drawn:
            outcomes = play(scenario, options.seed, options.jobs, drawn.tell)
        found[name] = figures(scenario, outcomes)
        if options.plot is not None:
            _plotting().draw(scenario, outcomes, found[name], options.plot)
    if options.json:
        by_name = {name: each.as_dict() for name, each in found.items()}
        print(json.dumps(by_name if len(by_name) > 1 else next(iter(by_name.values())), indent=2))
    else:
        print("\n\n".join(_text(name, scenarios[name], each) for name, each in found.items()))
    return 0


def play(
    scenario: Scenario, seed: int, jobs: int | None = None, tell: Callable[[int, int, str], None] | None = None
) -> list[Outcome]:
    """All parts of a scenario, each with a generator of its own, so that the number of processes changes nothing.

    Args:
        scenario: what to simulate.
        seed: the same seed gives the same outcomes.
        jobs: processes; None: as many as are worth it.
        tell: told how many parts of how many are done.
    """
    todo = parts(scenario)
    if jobs is None:
        jobs = (os.cpu_count() or 1) if scenario.total_clients * scenario.seconds >= LONG else 1
    one = partial(_play_part, scenario, seed)
    if jobs <= 1 or len(todo) <= 1:
        return _told(map(one, todo), len(todo), tell)
    with ProcessPoolExecutor(min(jobs, len(todo)), mp_context=get_context("spawn")) as pool:
        return _told(pool.map(one, todo), len(todo), tell)


def _told(outcomes: Iterable[Outcome], whole: int, tell: Callable[[int, int, str], None] | None) -> list[Outcome]:
    """All of them; who watches hears of each."""
    found = []
    for outcome in outcomes:
        found.append(outcome)
        if tell is not None and whole > 1:
            tell(len(found), whole, "parts")
    return found


def _play_part(scenario: Scenario, seed: int, part: Part) -> Outcome:
    return simulate(scenario, part, random.Random(f"{seed}/{part.brokers[0]}"))  # noqa: S311  not for secrets


def _scenarios(options: argparse.Namespace) -> dict[str, Scenario]:
    """Producers and consumers have nothing to do with each other: each kind is a scenario of its own."""
    producers = options.clients
    if producers is None:
        producers = 0 if options.plain or options.consumers or options.plain_consumers else DEFAULT_CLIENTS
    kinds = {
        "producers": (producers, options.plain),
        "consumers": (options.consumers, options.plain_consumers),
    }
    chosen = {name: kind for name, kind in kinds.items() if any(kind)} or {"producers": kinds["producers"]}
    return {name: _scenario(options, *kind, consume=name == "consumers") for name, kind in chosen.items()}


def _scenario(options: argparse.Namespace, clients: int, plain: int, *, consume: bool) -> Scenario:
    arrivals = (Change(second * 1000, count) for second, count in options.arrivals)
    departures = (Change(second * 1000, -count) for second, count in options.departures)
    return Scenario(
        brokers=options.brokers,
        clients=clients,
        learning=options.learning,
        plain=plain,
        consume=consume,
        quota=options.quota,
        message_bytes=options.message_bytes,
        batch_messages=options.batch_messages,
        seconds=options.seconds,
        told=options.source == "config",
        demands=tuple(options.demand or (inf,)),
        leaders=tuple(options.leaders),
        keyed=options.keyed,
        changes=(*arrivals, *departures),
        network=Network(round_trip_ms=options.round_trip_ms, jitter_ms=options.jitter_ms),
        warm_up_ms=options.warm_up * 1000,
    )


def _plotting() -> Any:
    try:
        from kclient_quota.cli import simulation_plot  # noqa: PLC0415  its library is an extra
    except ModuleNotFoundError as error:
        raise ConfigError(f"--plot needs {error.name}: pip install 'kclient-quota[demo]'") from error
    return simulation_plot


def _leaders(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(broker) for broker in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"brokers separated by commas, as 0,1,2, not {text!r}") from None


def _change(text: str) -> tuple[int, int]:
    try:
        second, clients = (int(number) for number in text.split(":"))
    except ValueError:
        raise argparse.ArgumentTypeError(f"SECOND:CLIENTS, as 60:8, not {text!r}") from None
    if clients < 1:
        raise argparse.ArgumentTypeError(f"at least 1 client, not {clients}")
    return second, clients


def _text(kind: str, scenario: Scenario, found: Figures) -> str:
    ours = scenario.total_clients - scenario.plain
    who = [f"{ours:,} {kind}"] if ours else []
    who += [f"{scenario.plain:,} plain {kind}"] if scenario.plain else []
    rows = [
        ("clients", f"{', '.join(who)} on {scenario.brokers:,} brokers, {scenario.quota:,.0f} B/s each"),
        ("utilisation", f"{found.utilisation:.3f} ({found.bytes_per_second:,.0f} B/s together)"),
        ("fairness (Jain)", f"{found.jain:.4f}; the poorest has {found.least_share:.2f} of an equal share"),
        ("throttled", f"{found.throttled:.1%} of responses after the warm-up ({found.requests:,} requests in all)"),
        ("throttle time", f"{_throttle_words(found)}; during the warm-up up to {found.first_throttle_ms:,} ms"),
        ("longest gap", f"{found.longest_gap_ms:,} ms between two messages of a client"),
    ]
    for name, of_kind in (("knowing", found.known), ("learning", found.learning), ("plain", found.plain)):
        rows += [] if of_kind is None else _kind_rows(name, of_kind)
    if found.delivery is not None:
        rows += _delivery_rows(found.delivery)
    for at in found.settling:
        after = "not before the next change" if at.after_ms is None else f"after {at.after_ms / 1000:g} s"
        rows.append((f"settled, {at.at_ms / 1000:g} s", after))
    return "\n".join(f"{name:<18}{value}" for name, value in rows)


def _kind_rows(name: str, found: KindFigures) -> list[tuple[str, str]]:
    return [
        (f"{name} clients", f"{found.used:.1%} of all bytes; longest gap {found.longest_gap_ms:,} ms"),
        ("their share", f"{found.share:.2f} of an equal one; Jain {found.jain:.4f} among {found.clients:,}"),
        ("their throttles", _throttle_words(found)),
    ]


def _delivery_rows(found: DeliveryFigures) -> list[tuple[str, str]]:
    return [
        ("plain delivery", f"{found.utilisation:.3f} of the quota acknowledged; {found.expired:,} messages expired"),
        ("their time-outs", f"{found.timeouts:,} connections; {found.duplicates:,} messages twice in the log"),
    ]


def _throttle_words(found: Figures | KindFigures) -> str:
    return f"p50 {found.throttle_p50_ms:,} ms, p99 {found.throttle_p99_ms:,} ms, longest {found.throttle_max_ms:,} ms"
