"""`kclient-quota top`: who is throttled now, in a terminal or as JSON."""

import argparse
import json
import os
import shutil
import sys
from functools import partial
from typing import TYPE_CHECKING, Any

from kclient_quota.cli.printing import warn
from kclient_quota.cli.quantities import count, seconds
from kclient_quota.cli.quota_options import add_cluster_options, configuration
from kclient_quota.cli.telemetry_sources import add_source_arguments, opened
from kclient_quota.clock import SYSTEM_CLOCK, unix_ms
from kclient_quota.errors import ClusterError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kclient_quota.operate.top import Row, Top

_SORTS = ("throttle", "wait", "rate", "use", "lag", "fill", "since", "client")
_QUOTAS_MS = 30_000
_AROUND = 5  # lines of a screen that are not clients'
_CLEAR = "\x1b[H\x1b[2J"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    add_source_arguments(parser, required=True)
    add_cluster_options(parser)
    parser.add_argument("--sort", choices=_SORTS, default="throttle", help="default: %(default)s")
    parser.add_argument("--filter", default="", metavar="TEXT", help="clients whose client.id or user has this in it")
    parser.add_argument(
        "--limit", type=count, default=1_000, metavar="N", help="most clients shown (default: %(default)s)"
    )
    parser.add_argument("--interval", type=seconds, default=5.0, metavar="SECONDS", help="default: %(default)g")
    parser.add_argument("--once", action="store_true", help="look for one interval or to a topic's end, print, end")
    parser.add_argument("--json", action="store_true", help="print rows as JSON, a line for each interval")
    parser.add_argument("--plain", action="store_true", help="print tables below each other, no screen")
    parser.epilog = "The screen needs textual: pip install 'kclient-quota[top]'. Its keys: s sorts, / filters, q quits."


def run(options: argparse.Namespace) -> int:
    """Watch until Ctrl-C, or once.

    Raises:
        ConfigError: an option cannot be used.
        ClusterError: the source cannot be read.
    """
    from kclient_quota.operate.top import Top  # noqa: PLC0415 - slow to load for --help

    top, ends, said = Top(), [False], False
    trouble = _Trouble(options)
    look, close = opened(
        options, top.take, lambda: ends[0], whole=options.once, trouble=None if options.once else trouble.tell
    )
    quotas = _Quotas(options)
    rows = partial(_rows, top, quotas, options)
    summary = partial(_summary, top, trouble)

    def look_at_all(interval_s: float) -> None:
        look(interval_s)
        quotas.ask()

    screen = _screen(options)
    try:
        if screen is None:
            while True:
                look_at_all(options.interval)
                _print(rows(options.sort, options.filter), summary, options)
                if quotas.problem and not said:
                    warn(quotas.problem)
                    said = True
                if options.once:
                    return 0
        shown = screen(
            look_at_all,
            rows,
            summary,
            interval_s=options.interval,
            sort=options.sort,
            wanted=options.filter,
        )
        shown.run()
        if shown.failure is not None:
            raise shown.failure
        if quotas.problem:
            warn(quotas.problem)
        return int(shown.return_code or 0)
    finally:
        ends[0] = True
        quotas.close()
        close()


def _screen(options: argparse.Namespace) -> "Callable[..., Any] | None":
    """The screen, where there is a terminal, somebody wants it, and textual is installed."""
    has_keyboard = sys.stdin is not None and sys.stdin.isatty()  # none where a shell's `<&-` has closed it
    if options.json or not (has_keyboard and _may_clear(options)):
        return None
    try:
        from kclient_quota.cli.top_screen import TopScreen  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "textual":
            raise
        return None
    return TopScreen


def _may_clear(options: argparse.Namespace) -> bool:
    """Whether one table may take the other's place."""
    return sys.stdout.isatty() and os.environ.get("TERM") != "dumb" and not (options.once or options.plain)


def _rows(top: "Top", quotas: "_Quotas", options: argparse.Namespace, sort: str, wanted: str) -> "list[Row]":
    return top.rows(unix_ms(), sort=sort, wanted=wanted, quotas=quotas.index)[: options.limit]


def _summary(top: "Top", trouble: "_Trouble", rows: "Sequence[Row]") -> str:
    from kclient_quota.operate.top import summary  # noqa: PLC0415 - as above

    return "; ".join(filter(None, (trouble.now, summary(rows, top.left_out))))


def _print(rows: "list[Row]", summary: "Callable[[Sequence[Row]], str]", options: argparse.Namespace) -> None:
    from kclient_quota.operate.top import short, table  # noqa: PLC0415 - as above

    if options.json:
        print(json.dumps([row.as_dict() for row in rows]), flush=True)
        return
    is_screen = _may_clear(options)
    size = shutil.get_terminal_size()
    fit = max(1, size.lines - _AROUND) if is_screen else len(rows)
    text = table(rows[:fit], unix_ms()) if rows else "no client has pushed anything yet"
    if is_screen:  # a line that is broken in two would push the first ones out
        text = "\n".join(short(line, size.columns) for line in text.splitlines())
    more = f"\nand {len(rows) - fit} more" if len(rows) > fit else ""
    print(f"{_CLEAR if is_screen else ''}{summary(rows)}\n\n{text}{more}", flush=True)


class _Trouble:
    """What keeps the source from being read now, for whoever looks at the tables; rows of JSON have no place for it.

    Attributes:
        now: in words; empty while it is read.
    """

    def __init__(self, options: argparse.Namespace) -> None:
        self._is_json = options.json
        self.now = ""

    def tell(self, words: str) -> None:
        """It is so from now on."""
        if self._is_json and words and words != self.now:
            warn(words)
        self.now = words


class _Quotas:
    """The cluster's quotas, asked for again every half a minute; none without a cluster or without the right.

    Attributes:
        index: the quotas.
        problem: why they are not known, if so.
    """

    def __init__(self, options: argparse.Namespace) -> None:
        from kclient_quota.admin.quotas import QuotaAdmin  # noqa: PLC0415 - as above

        has_cluster = bool(options.bootstrap_server or options.command_config)
        self._admin = QuotaAdmin(configuration(options)) if has_cluster else None
        self._timeout_s = options.timeout
        self.index: Any = None
        self.problem = ""
        self._asked_ms: int | None = None

    def ask(self) -> None:
        """Ask, if it is time."""
        now_ms = SYSTEM_CLOCK.now_ms()
        if self._admin is not None and (self._asked_ms is None or now_ms - self._asked_ms >= _QUOTAS_MS):
            self._asked_ms = now_ms
            try:
                self.index = self._admin.index_client_quotas(request_timeout=self._timeout_s).result()
                self.problem = ""
            except ClusterError as error:
                self.problem = f"limits are not known: {error}"

    def close(self) -> None:
        if self._admin is not None:
            self._admin.close()
