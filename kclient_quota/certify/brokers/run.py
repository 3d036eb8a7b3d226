"""Puts a broker to rows: most of them side by side, those that set quotas of defaults one after the other."""

import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, NamedTuple

from kclient_quota.certify.brokers import byte_rates, connections, levels, requests, telemetry
from kclient_quota.certify.brokers.probe import Probe
from kclient_quota.certify.brokers.row import Row
from kclient_quota.certify.choice import chosen
from kclient_quota.certify.verdict import Grade, Verdict

ALL: tuple[Row, ...] = (*byte_rates.ROWS, *levels.ROWS, *requests.ROWS, *telemetry.ROWS, *connections.ROWS)
_SIDE_BY_SIDE: Final = 6


class Result(NamedTuple):
    """One row.

    Attributes:
        row: which one.
        verdict: what came of it.
        seconds: how long it took.
    """

    row: Row
    verdict: Verdict
    seconds: float


def select(names: Sequence[str]) -> list[Row]:
    """The rows whose names begin with one of `names`; all of them when there is none.

    Raises:
        ConfigError: a name fits no row.
    """
    return chosen("row", ALL, names)


def certify(conf: Mapping[str, Any], rows: Sequence[Row], *, say: Callable[[str], object]) -> list[Result]:
    """Ask everything; results in the order of rows. `say` hears of each as it ends."""
    run = secrets.token_hex(3)

    def ask(row: Row) -> Result:
        begin = time.monotonic()
        try:
            with Probe(conf, f"certify-{run}-{row.name}") as probe:
                verdict = row.judge(probe)
        except Exception as error:  # noqa: BLE001 - one row's trouble must not take the others' results with it
            verdict = Verdict(Grade.NOT_PLAYED, f"{type(error).__name__}: {error}")
        say(f"{verdict.grade.value:10} {row.name}: {verdict.why}")
        return Result(row, verdict, time.monotonic() - begin)

    with ThreadPoolExecutor(_SIDE_BY_SIDE) as pool:
        together = [row for row in rows if not row.alone]
        done = {result.row.name: result for result in pool.map(ask, together)}
    done |= {row.name: ask(row) for row in rows if row.alone}
    return [done[row.name] for row in rows]
