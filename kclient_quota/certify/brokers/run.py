"""Puts a broker to rows: most of them side by side, those that set quotas of defaults one after the other."""

import secrets
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, NamedTuple

from kclient_telemetry import logger_of

from kclient_quota.certify.brokers import byte_rates, connections, levels, requests, telemetry
from kclient_quota.certify.brokers.probe import Probe
from kclient_quota.certify.brokers.row import Row
from kclient_quota.certify.choice import chosen
from kclient_quota.certify.verdict import Grade, Verdict
from kclient_quota.testing.children import Children, as_they_end

log = logger_of(__name__)

ALL: tuple[Row, ...] = (*byte_rates.ROWS, *levels.ROWS, *requests.ROWS, *telemetry.ROWS, *connections.ROWS)
_SIDE_BY_SIDE: Final = 6
_REMOVE_S: Final = 3.0
"""For how long whoever presses Ctrl-C waits until everything is removed again. It takes 0.13 s, but on a busy machine
more than 0.8 s: quotas were left on the cluster then."""


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
    """Ask everything; results in the order of rows. `say` hears of each as it ends.

    Whoever interrupts it waits for nothing but that what was set is removed.
    """
    run = secrets.token_hex(3)
    children = Children()

    def ask(row: Row) -> Result:
        begin = time.monotonic()
        try:
            with children.start(lambda: Probe(conf, f"certify-{run}-{row.name}"), Probe.close) as probe:
                verdict = row.judge(probe)
        except Exception as error:  # noqa: BLE001 - one row's trouble must not take the others' results with it
            verdict = Verdict(Grade.NOT_PLAYED, f"{type(error).__name__}: {error}")
        say(f"{verdict.grade.value:10} {row.name}: {verdict.why}")
        return Result(row, verdict, time.monotonic() - begin)

    pool = ThreadPoolExecutor(_SIDE_BY_SIDE)
    try:
        together = [row for row in rows if not row.alone]
        found = (future.result() for future in as_they_end([pool.submit(ask, row) for row in together]))
        done = {result.row.name: result for result in found}
        done |= {row.name: ask(row) for row in rows if row.alone}
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        _remove(children, run)
        raise
    pool.shutdown()
    return [done[row.name] for row in rows]


def _remove(children: Children, run: str) -> None:
    remover = threading.Thread(target=children.end, daemon=True)
    remover.start()
    remover.join(_REMOVE_S)
    if remover.is_alive():
        log.warning("the cluster does not answer: quotas and topics whose names begin with certify-%s may be left", run)
