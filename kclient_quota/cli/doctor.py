"""`kclient-quota doctor`: what a client of this configuration would meet on a cluster."""

import argparse
import json
import textwrap
from typing import TYPE_CHECKING

from kclient_quota.cli.printing import answer, columns, notice
from kclient_quota.cli.quantities import seconds
from kclient_quota.cli.quota_options import add_cluster_options, configuration
from kclient_quota.cli.telemetry_sources import add_source_arguments, opened
from kclient_quota.clock import unix_ms
from kclient_quota.config import split, user_of
from kclient_quota.errors import ClusterError, ConfigError
from kclient_quota.quota.entity import CLIENT_ID, USER, ClientQuotaEntity

if TYPE_CHECKING:
    from kclient_quota.admin.quotas import QuotaAdmin
    from kclient_quota.operate.doctor import Finding
    from kclient_quota.operate.top import Top

TO_CHANGE = 3
_NARROWEST = 40
_ANONYMOUS = "ANONYMOUS"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    add_cluster_options(parser)
    parser.add_argument("--client-id", metavar="NAME", help="the client's (default: client.id of the configuration)")
    parser.add_argument("--user", metavar="NAME", help="the client's (default: sasl.username, else ANONYMOUS)")
    parser.add_argument("--topic", metavar="NAME", help="what it produces to or consumes")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="a setting of the client; may be repeated"
    )
    parser.add_argument(
        "--plain", action="store_true", help="judge a client of confluent_kafka's own (librdkafka), not kclient_quota's"
    )
    add_source_arguments(parser, required=False)
    parser.add_argument(
        "--live",
        type=seconds,
        metavar="SECONDS",
        help="watch for so long what a running client of this client-id and user pushes; needs --from-topic or "
        "--prometheus",
    )
    parser.add_argument("--json", action="store_true", help="print the findings as JSON")
    parser.epilog = (
        f"exit status: 0 nothing to change; 1 the cluster does not answer; 2 wrong options; {TO_CHANGE} something to "
        "change. With --topic the newest hundred messages or so are read."
    )


def run(options: argparse.Namespace) -> int:
    """Ask and tell.

    Returns:
        0, or TO_CHANGE.

    Raises:
        ConfigError: an option cannot be used.
        ClusterError: the cluster cannot be reached.
    """
    from kclient_quota.admin.quotas import QuotaAdmin  # noqa: PLC0415 - slow to load for --help
    from kclient_quota.operate.doctor import CHANGE, examine, ordered  # noqa: PLC0415 - as above
    from kclient_quota.operate.facts import gather  # noqa: PLC0415 - as above

    conf = configuration(options)
    for text in options.set:
        key, equals, value = text.partition("=")
        if not key or not equals:
            raise ConfigError(f"--set {text}: write it as KEY=VALUE")
        conf[key] = value
    if not options.plain:
        split(conf)  # a value that no client of ours could be made with
    if options.client_id:
        conf["client.id"] = options.client_id
    user, client_id = options.user or user_of(conf) or _ANONYMOUS, str(conf["client.id"])
    entity = ClientQuotaEntity({USER: user, CLIENT_ID: client_id})
    if options.live is not None and not (options.from_topic or options.prometheus):
        raise ConfigError("--live watches pushes: say where they are with --from-topic NAME or --prometheus URL")
    with QuotaAdmin(conf) as admin:
        facts = gather(admin, entity, options.topic, timeout_s=options.timeout, unix_ms=unix_ms)
        findings = examine(facts, conf, plain=options.plain)
        if options.live is not None:
            findings = ordered([*findings, *_watched(options, admin, user, client_id)])
    changes = sum(finding.level == CHANGE for finding in findings)
    if options.json:
        answer(json.dumps([finding.row() for finding in findings], indent=2))
    else:
        answer("\n".join([*map(_text, findings), "", f"{changes or 'nothing'} to change"]))
    return TO_CHANGE if changes else 0


def _watched(options: argparse.Namespace, admin: "QuotaAdmin", user: str, client_id: str) -> "list[Finding]":
    from kclient_quota.operate.doctor import unwatched, watch  # noqa: PLC0415 - as above
    from kclient_quota.operate.top import Top  # noqa: PLC0415 - as above

    top = Top()
    try:
        _look(options, top, client_id)
    except ClusterError as error:  # all else that was found is worth as much without it
        return [unwatched(error)]
    try:
        quotas = admin.index_client_quotas(request_timeout=options.timeout).result()
    except ClusterError:
        quotas = None
    rows = top.rows(unix_ms(), quotas=quotas)
    return watch([row for row in rows if row.client == client_id and row.user in {user, ""}], options.live)


def _look(options: argparse.Namespace, top: "Top", client_id: str) -> None:
    look, close = opened(options, top.take, lambda: False, whole=False)
    notice(f"watching {client_id} for {options.live:g} s")
    try:
        look(options.live)
        if options.prometheus:
            look(options.live)  # the first look is for what counters count from
    finally:
        close()


def _text(finding: "Finding") -> str:
    mark = {"ok": "ok    ", "note": "note  ", "change": "CHANGE"}[finding.level]
    lines = _wrapped(f"{mark}  ", f"{finding.topic}: {finding.said}")
    return "\n".join(lines + (_wrapped("        -> ", finding.remedy) if finding.remedy else []))


def _wrapped(begin: str, words: str) -> list[str]:
    return textwrap.wrap(
        words,
        max(columns(), _NARROWEST),
        initial_indent=begin,
        subsequent_indent=" " * len(begin),
        break_long_words=False,
        break_on_hyphens=False,
    )
