"""`kclient-quota certify`: does a client bear throttling, does a broker throttle as it should?"""

# ruff: noqa: PLC0415 - scenes and brokers are loaded when they are played, and not for `--help`

import argparse
import json
import platform
import shutil
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kclient_quota.certify import SIDE_BY_SIDE
from kclient_quota.cli.printing import answer, columns
from kclient_quota.cli.quota_options import add_cluster_options, configuration
from kclient_quota.cli.running import stops_are_ctrl_c
from kclient_quota.errors import ConfigError, misread

if TYPE_CHECKING:
    from kclient_quota.certify.card import Card

_STANDARD_OUTPUT: Final = Path("-")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options."""
    kinds = parser.add_subparsers(title="what to certify", required=True, metavar="WHAT")
    client = kinds.add_parser(
        "client",
        help="a client, by a driver of your own",
        description="Starts COMMAND once for each scene; the environment tells it what to do, and it writes JSON lines "
        "(`python -m pydoc kclient_quota.certify.driver`). Exit status: 0 when no scene failed, 1 otherwise.",
    )
    client.add_argument("--name", help="what to call the client (default: the command)")
    client.add_argument("--only", action="append", default=[], metavar="SCENE", help="scenes that begin so; repeatable")
    client.add_argument(
        "--side-by-side", type=int, default=SIDE_BY_SIDE, metavar="N", help="scenes at a time (%(default)s)"
    )
    client.add_argument(
        "--runs",
        type=int,
        default=1,
        metavar="N",
        help="play each scene so often; not the same grade each time is weak",
    )
    _add_card(client)
    client.add_argument("--badge", type=Path, metavar="FILE", help="write an SVG badge there")
    client.add_argument("command", nargs="+", metavar="COMMAND", help="the driver, after --")
    client.set_defaults(certify=_client)
    _add_broker(kinds)
    scenes = kinds.add_parser("scenes", help="what is played, what is right, and who says so")
    scenes.set_defaults(certify=_scenes)
    rows = kinds.add_parser("rows", help="the same for brokers")
    rows.set_defaults(certify=_rows)
    for listed in (scenes, rows):
        listed.add_argument("--json", action="store_true", help="print them as JSON")
    page = kinds.add_parser("page", help="the table of several clients as one HTML page")
    page.add_argument("cards", nargs="+", type=Path, metavar="CARD", help="what --json has kept")
    page.set_defaults(certify=_page)


def _add_card(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--json",
        type=Path,
        nargs="?",
        const=_STANDARD_OUTPUT,
        metavar="FILE",
        help="keep the card there; without a file print it as JSON",
    )


def _add_broker(kinds: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    broker = kinds.add_parser(
        "broker",
        help="a broker, by its answers",
        description="Asks a cluster that is there for tests how it throttles. It sets quotas, of defaults as well, and "
        "makes topics; all of it is removed again. Exit status: 0 when no row failed, 1 otherwise.",
    )
    add_cluster_options(broker)
    broker.add_argument("--name", help="what to call the broker (default: its address)")
    broker.add_argument("--only", action="append", default=[], metavar="ROW", help="rows that begin so; repeatable")
    _add_card(broker)
    broker.set_defaults(certify=_broker)


@stops_are_ctrl_c()
def run(options: argparse.Namespace) -> int:
    """Do what was asked for."""
    return int(options.certify(options))


def _client(options: argparse.Namespace) -> int:
    from kclient_quota.certify import card
    from kclient_quota.certify.run import certify
    from kclient_quota.certify.scenes import select
    from kclient_quota.certify.verdict import Grade

    if options.side_by_side < 1:
        raise ConfigError(f"--side-by-side must be at least 1, not {options.side_by_side}")
    if shutil.which(options.command[0]) is None:
        raise ConfigError(f"{options.command[0]}: there is no such program to start; name the driver after --")
    if options.runs < 1:
        raise ConfigError(f"--runs must be at least 1, not {options.runs}")
    scenes = select(options.only)
    results = certify(scenes, options.command, side_by_side=options.side_by_side, runs=options.runs, say=_say)
    rows = [(found.scene.name, found.verdict.grade.value, found.verdict.why, found.seconds) for found in results]
    name = options.name or " ".join(options.command)
    made = card.card(name, rows, f"Python {platform.python_version()}", runs=options.runs)
    _show(made, options.json)
    if options.badge is not None:
        _write(options.badge, card.badge(made))
    return int(any(found.verdict.grade in {Grade.FAIL, Grade.NOT_PLAYED} for found in results))


def _broker(options: argparse.Namespace) -> int:
    from kclient_quota.admin.quotas import QuotaAdmin
    from kclient_quota.certify import card
    from kclient_quota.certify.brokers.run import certify, select
    from kclient_quota.certify.verdict import Grade

    conf = configuration(options)
    rows = select(options.only)
    with QuotaAdmin(conf) as admin:  # a cluster that is not there is told now, and not by every row
        admin.describe_cluster(request_timeout=options.timeout).result()
    results = certify(conf, rows, say=_say)
    told = [(found.row.name, found.verdict.grade.value, found.verdict.why, found.seconds) for found in results]
    made = card.card(options.name or str(conf["bootstrap.servers"]), told, f"Python {platform.python_version()}")
    _show(made, options.json)
    return int(any(found.verdict.grade in {Grade.FAIL, Grade.NOT_PLAYED} for found in results))


def _show(made: "Card", file: Path | None) -> None:
    from kclient_quota.certify import card

    as_json = json.dumps(made, indent=1)
    answer(as_json if file == _STANDARD_OUTPUT else card.text(made, columns()))
    if file is not None and file != _STANDARD_OUTPUT:
        _write(file, as_json + "\n")


def _rows(options: argparse.Namespace) -> int:
    from kclient_quota.certify.brokers.run import ALL

    return _list([(row.name, row.expects, row.source) for row in ALL], as_json=options.json)


def _scenes(options: argparse.Namespace) -> int:
    from kclient_quota.certify.scenes import ALL

    return _list([(scene.name, scene.expects, scene.source) for scene in ALL], as_json=options.json)


def _list(found: list[tuple[str, str, str]], *, as_json: bool) -> int:
    if as_json:
        print(json.dumps([dict(zip(("name", "expects", "source"), each, strict=True)) for each in found], indent=2))
    else:
        for name, *texts in found:
            print(name)
            for text in texts:
                print(textwrap.fill(text, columns(), initial_indent="    ", subsequent_indent="    "))
    return 0


def _page(options: argparse.Namespace) -> int:
    from kclient_quota.certify import card

    cards = []
    for path in options.cards:
        try:
            made = json.loads(path.read_text())
            card.page([made])
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise ConfigError(f"{path} is no card: {misread(error)}; name one that certify has written") from error
        cards.append(made)
    print(card.page(cards), end="")
    return 0


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text)
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error}") from error


def _say(line: str) -> None:
    if sys.stderr.isatty():
        print(line, file=sys.stderr, flush=True)
