"""Playing what the options of `kclient-quota simulate` say."""

import argparse
import json
import os
import random
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from itertools import chain
from math import inf
from multiprocessing import active_children, get_context
from textwrap import wrap
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
from kclient_quota.testing.children import as_they_end

_WARM_UP_S: Final = 30
DEFAULT_CLIENTS: Final = 8
COLUMNS: Final = 80
"""Of the terminal that a report fits into."""
LONG: Final = 1_000_000
"""From how many client-seconds on more than one process is worth its start."""


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
    pool = ProcessPoolExecutor(min(jobs, len(todo)), get_context("spawn"), _leave_ctrl_c_to_who_waits)
    try:
        with _stops_wait():  # a process that is interrupted or left while it starts tells of it with a traceback
            running = [pool.submit(one, part) for part in todo]
        for number, future in enumerate(as_they_end(running), start=1):
            future.result()
            if tell is not None:
                tell(number, len(todo), "parts")
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        for child in active_children():
            child.kill()
        raise
    pool.shutdown()
    return [future.result() for future in running]


_STOPS: Final = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]


@contextmanager
def _stops_wait() -> Iterator[None]:
    if sys.platform == "win32":
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _STOPS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _leave_ctrl_c_to_who_waits() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if sys.platform != "win32":
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOPS)  # they were kept from who started this, and so from this


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
        warm_up_ms=1000 * (min(_WARM_UP_S, options.seconds // 2) if options.warm_up is None else options.warm_up),
    )


def _plotting() -> Any:
    try:
        from kclient_quota.cli import simulation_plot  # noqa: PLC0415  its library is an extra
    except ModuleNotFoundError as error:
        raise ConfigError(f"--plot needs {error.name}: pip install 'kclient-quota[demo]'") from error
    return simulation_plot


def _text(kind: str, scenario: Scenario, found: Figures) -> str:
    ours = scenario.total_clients - scenario.plain
    who = [f"{ours:,} {kind}"] if ours else []
    who += [f"{scenario.plain:,} plain {kind}"] if scenario.plain else []
    rows = [
        ("clients", f"{', '.join(who)} on {scenario.brokers:,} brokers, {scenario.quota:,.0f} B/s each"),
        ("utilisation", f"{found.utilisation:.3f} ({found.bytes_per_second:,.0f} B/s together)"),
        ("fairness (Jain)", f"{found.jain:.4f}; the poorest has {found.least_share:.2f} of an equal share"),
        ("throttled", f"{found.throttled:.1%} of responses after the warm-up ({found.requests:,} requests in all)"),
        ("throttle time", _throttle_words(found)),
        ("in the warm-up", f"up to {found.first_throttle_ms:,} ms"),
        ("longest gap", f"{found.longest_gap_ms:,} ms between two messages of a client"),
    ]
    for name, of_kind in (("knowing", found.known), ("learning", found.learning), ("plain", found.plain)):
        rows += [] if of_kind is None else _kind_rows(name, of_kind)
    if found.delivery is not None:
        rows += _delivery_rows(found.delivery)
    for at in found.settling:
        after = "not before the next change" if at.after_ms is None else f"after {at.after_ms / 1000:g} s"
        rows.append((f"settled, {at.at_ms / 1000:g} s", after))
    wrapped = (wrap(value, COLUMNS, initial_indent=f"{name:<18}", subsequent_indent=" " * 18) for name, value in rows)
    return "\n".join(chain.from_iterable(wrapped))


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
