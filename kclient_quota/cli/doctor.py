"""`kclient-quota doctor`: what a client of this configuration would meet on a cluster."""

import argparse
import json
from typing import TYPE_CHECKING

from kclient_quota.cli.quota_options import add_cluster_options, configuration
from kclient_quota.errors import ConfigError
from kclient_quota.quota.entity import CLIENT_ID, USER, ClientQuotaEntity

if TYPE_CHECKING:
    from kclient_quota.operate.doctor import Finding

TO_CHANGE = 3
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
    parser.add_argument("--json", action="store_true", help="print the findings as JSON")
    parser.epilog = f"exit status: 0 nothing to change; 1 the cluster does not answer; {TO_CHANGE} something to change"


def run(options: argparse.Namespace) -> int:
    """Ask and tell.

    Returns:
        0, or TO_CHANGE.

    Raises:
        ConfigError: an option cannot be used.
        ClusterError: the cluster cannot be reached.
    """
    from kclient_quota.admin.quotas import QuotaAdmin  # noqa: PLC0415 - slow to load for --help
    from kclient_quota.operate.doctor import CHANGE, examine, gather  # noqa: PLC0415 - as above

    conf = configuration(options)
    for text in options.set:
        key, equals, value = text.partition("=")
        if not key or not equals:
            raise ConfigError(f"--set {text}: write it as KEY=VALUE")
        conf[key] = value
    if options.client_id:
        conf["client.id"] = options.client_id
    entity = ClientQuotaEntity(
        {USER: options.user or str(conf.get("sasl.username") or _ANONYMOUS), CLIENT_ID: str(conf["client.id"])}
    )
    with QuotaAdmin(conf) as admin:
        facts = gather(admin, entity, options.topic, timeout_s=options.timeout)
    findings = examine(facts, conf)
    if options.json:
        print(json.dumps([finding.row() for finding in findings], indent=2))
    else:
        print("\n".join(map(_text, findings)))
    changes = sum(finding.level == CHANGE for finding in findings)
    if not options.json:
        print(f"\n{changes} to change" if changes else "\nnothing to change")
    return TO_CHANGE if changes else 0


def _text(finding: "Finding") -> str:
    mark = {"ok": "ok    ", "note": "note  ", "change": "CHANGE"}[finding.level]
    remedy = f"\n        -> {finding.remedy}" if finding.remedy else ""
    return f"{mark}  {finding.topic}: {finding.said}{remedy}"
