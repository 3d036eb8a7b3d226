"""docs/reference/kips.md: which KIP lives in which room, and which tests name it."""

import re
from collections import defaultdict
from pathlib import Path

from docs.generate.page import PACKAGES, ROOT, head
from kclient_quota.broker import handlers
from kclient_quota.broker.request.registry import REGISTRY

assert handlers.__doc__, "importing the handlers registers them"

_KIP = re.compile(r"\bKIP-(\d+)\b")
_REQUEST = re.compile(r"\b[A-Z]\w+Request\b")
_IMPORT = re.compile(r"(?:from|import) (kclient_[\w.]+)")
_TITLES = {
    4: "administration by protocol",
    12: "SASL and Kerberos",
    13: "quotas",
    35: "ApiVersions",
    42: "interceptors",
    43: "SASL",
    62: "max.poll.interval.ms",
    74: "maximum fetch size",
    79: "offsets by timestamp",
    84: "SCRAM",
    98: "idempotence and transactions",
    107: "delete records",
    124: "request quotas",
    134: "delay of the first rebalance",
    152: "SASL error messages",
    195: "add partitions",
    219: "answer first, mute afterwards",
    226: "configuration without restart",
    227: "fetch sessions",
    255: "OAUTHBEARER",
    257: "ClientQuotaCallback",
    320: "leader epochs",
    339: "incremental configuration",
    341: "fail on partition changes",
    342: "OAUTHBEARER extensions",
    345: "static membership",
    360: "idempotence that recovers",
    368: "re-authentication",
    392: "fetch from followers",
    394: "member ids before joining",
    405: "tiered storage",
    430: "authorized operations",
    447: "producer per thread for exactly once",
    467: "error messages of produce",
    511: "client name and version",
    516: "topic ids",
    546: "quota administration",
    464: "default partitions and replicas",
    482: "flexible versions",
    496: "administration of offsets",
    518: "groups by state",
    525: "topic ids in answers",
    554: "SCRAM administration",
    559: "more of transactions",
    584: "upgrades of features",
    588: "fenced producers recover",
    599: "quota of topic changes",
    612: "quota of connections",
    714: "client telemetry",
    848: "consumer groups, new protocol",
    890: "transactions, part 2",
    899: "rebootstrap",
    932: "share groups (not paced)",
    951: "leader discovery",
    699: "several coordinators at once",
    700: "DescribeCluster",
    709: "offsets of several groups",
    734: "offset of the largest timestamp",
    800: "reasons for joining and leaving",
    814: "static members keep assignments",
    919: "administration by controllers",
    994: "filters of transactions",
    1000: "list client-metrics subscriptions",
    1005: "earliest local offset",
    1022: "versions of features",
    1043: "administration of groups",
    1073: "fenced brokers",
    1075: "time-out of ListOffsets",
    1082: "member ids of the client's making",
    1099: "consumer groups on the command line",
    1102: "rebootstrap on error",
    1142: "list configured resources",
    1166: "high watermark replication",
    1076: "metrics of the application",
    1217: "telemetry exporter plug-ins",
}


def page() -> str:
    """The whole page."""
    rooms, tests = _named(PACKAGES), _named((ROOT / "tests",))
    for number, folders in _importing(rooms).items():
        tests[number] += folders
    lines = [
        head(
            "KIP × room × test",
            "Which Kafka Improvement Proposal is spoken where, and which folders of tests name it. What shipped Kafka does "
            "differently from a proposal's text: [KIP and shipped Kafka](../explanation/kips.md).",
        ),
        "| KIP | about | rooms | tests |",
        "|---|---|---|---|",
    ]
    for number in sorted(rooms):
        where = sorted({_room(path) for path in rooms[number]})
        shown = ", ".join(sorted({path.parent.relative_to(ROOT).as_posix() for path in tests.get(number, [])}))
        lines.append(f"| {number} | {_TITLES.get(number, '')} | {', '.join(where)} | {shown} |")
    return "\n".join(lines) + "\n"


def _named(folders: tuple[Path, ...]) -> dict[int, list[Path]]:
    found: dict[int, list[Path]] = defaultdict(list)
    for folder in folders:
        for path in sorted(folder.rglob("*.py")):
            for number in {int(kip) for kip in _KIP.findall(path.read_text())}:
                found[number].append(path)
    return found


def _importing(rooms: dict[int, list[Path]]) -> dict[int, list[Path]]:
    """Tests that import a module in which the proposal is named, or speak a request that it answers."""
    answers: dict[str, list[str]] = defaultdict(list)
    for entry in REGISTRY.values():
        answers[entry.request.__name__].append(entry.call.__module__)
    imported: dict[str, list[Path]] = defaultdict(list)
    for path in sorted((ROOT / "tests").rglob("*.py")):
        text = path.read_text()
        spoken = [module for name in set(_REQUEST.findall(text)) for module in answers[name]]
        for module in {*_IMPORT.findall(text), *spoken}:
            imported[module].append(path)
    return {
        number: [test for path in paths for test in imported.get(_module(path), [])] for number, paths in rooms.items()
    }


def _module(path: Path) -> str:
    package = next(package for package in PACKAGES if path.is_relative_to(package))
    return ".".join(path.relative_to(package.parent).with_suffix("").parts).removesuffix(".__init__")


def _room(path: Path) -> str:
    for package in PACKAGES:
        if path.is_relative_to(package):
            parts = path.relative_to(package).parts
            return package.name if len(parts) == 1 else f"{package.name}.{parts[0]}"
    return path.name
