"""`kafka-quotas plan|diff|apply|undo|export|reconcile`: quotas as code."""

import argparse
import json
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kclient_quota.admin.applying import Applier, ConflictError
from kclient_quota.admin.journal import Applied, Journal
from kclient_quota.admin.output import alteration_lines
from kclient_quota.admin.plan import Plan, asked_after, make_plan
from kclient_quota.admin.quota_file import FileEntry, QuotaFile, format_quota_file, parse_quota_file
from kclient_quota.admin.quotas import QuotaAdmin
from kclient_quota.admin.unit_quotas import QuotaState, Target, UnitQuotas, in_order
from kclient_quota.cli.printing import add_output_option, agreed, rendered, warn
from kclient_quota.cli.quota_options import (
    DIFFERENT,
    DONE,
    EXIT_CODES,
    add_cluster_options,
    add_store_option,
    configuration,
    unit_quotas,
)
from kclient_quota.errors import ConfigError
from kclient_quota.quota.entity import sanitize

_DETAILED_DIFFERENT = 2


def add_code_commands(commands: Any) -> None:
    """Add the commands to a parser's subparsers."""
    plan = _command(commands, "plan", "what applying a file would change, also for those who are held to it")
    plan.add_argument("--out", type=Path, metavar="PLAN.json", help="keep the plan for `apply --plan`")
    diff = _command(commands, "diff", "lines that differ between the cluster and a file; exit status 4 if any do")
    apply = _command(commands, "apply", "make the cluster what a file says; run again, it does nothing")
    apply.add_argument("--plan", type=Path, metavar="PLAN.json", help="refuse to do anything but this plan")
    apply.add_argument("--validate-only", action="store_true", help="ask the brokers whether they would, do nothing")
    reconcile = _command(
        commands, "reconcile", "work bps and shares out anew for the brokers and leaders of now", is_file_optional=True
    )
    reconcile.add_argument("--dry-run", action="store_true", help="only print what would be written")
    for parser in (plan, diff):
        parser.add_argument(
            "--detailed-exitcode",
            action="store_true",
            help="exit status as terraform's: 0 nothing to do, 1 whatever went wrong, 2 there is something to do",
        )
    for parser in (apply, reconcile):
        parser.add_argument(
            "--journal", type=Path, metavar="FILE", help="default: quotas.CLUSTER.journal beside the file"
        )
    for parser in (plan, diff, apply):
        parser.add_argument("--prune", action="store_true", help="remove what the file does not set, everywhere")
        parser.add_argument(
            "--allow-empty", action="store_true", help="with --prune, also when the file sets nothing at all"
        )
        add_output_option(parser, ("text", "json", "yaml"))
    for parser, run in ((plan, _plan), (diff, _diff), (apply, _apply), (reconcile, _reconcile)):
        parser.set_defaults(run=run)
    undo = commands.add_parser(
        "undo",
        help="take back the last run of `apply` that a journal has",
        description="Takes back what a run may have altered, and nothing else. What fails half-way goes on with the "
        "same run when it is called again.",
        epilog=EXIT_CODES,
    )
    undo.add_argument(
        "journal",
        type=Path,
        metavar="JOURNAL",
        nargs="?",
        default=Path(),
        help="a journal, or the file or folder beside which it lies (default: this folder)",
    )
    undo.add_argument("--run", type=int, metavar="N", dest="number", help="this run (default: the last that stands)")
    undo.set_defaults(run=_undo)
    for parser in (apply, undo):
        parser.add_argument("--yes", "-y", action="store_true", help="do not ask; needed for removals by a script")
    export = commands.add_parser("export", help="print a file that says what is configured", epilog=EXIT_CODES)
    export.set_defaults(run=_export)
    for parser in (undo, export):
        add_cluster_options(parser)
        add_store_option(parser)


def _command(commands: Any, name: str, what: str, *, is_file_optional: bool = False) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(name, help=what, description=what, epilog=EXIT_CODES)
    if is_file_optional:
        parser.add_argument("file", type=Path, metavar="FILE.yaml", nargs="?", help="default: the units store alone")
    else:
        parser.add_argument("file", type=Path, metavar="FILE.yaml")
    add_cluster_options(parser)
    add_store_option(parser)
    return parser


def _plan(options: argparse.Namespace) -> int:
    file = _file(options)
    with QuotaAdmin(configuration(options)) as admin:
        _, _, plan = _planned(unit_quotas(admin, options), file, prune=options.prune)
        cluster = _cluster_id(admin, options)
    if options.out:
        _write(options.out, json.dumps({"cluster": cluster, **plan.rows()}, indent=1))
    print(_shown(plan, options))
    return _DETAILED_DIFFERENT if options.detailed_exitcode and plan else DONE


def _diff(options: argparse.Namespace) -> int:
    file = _file(options)
    with QuotaAdmin(configuration(options)) as admin:
        _, _, plan = _planned(unit_quotas(admin, options), file, prune=options.prune)
    lines = [*map(str, plan.changes), *plan.derived_lines()]
    text = rendered(options.output, lambda: "\n".join(lines), str, lambda: [plan.rows()])
    if text:
        print(text)
    if not plan:
        return DONE
    return _DETAILED_DIFFERENT if options.detailed_exitcode else DIFFERENT


def _apply(options: argparse.Namespace) -> int:
    file = _file(options)
    with QuotaAdmin(configuration(options)) as admin:
        quotas = unit_quotas(admin, options)
        state, target, plan = _planned(quotas, file, prune=options.prune)
        cluster = _cluster_id(admin, options)
        if options.plan:
            _check_plan(options.plan, {"cluster": cluster, **plan.doing()})
        if options.validate_only:
            quotas.write(state, target, validate_only=True)
            print(_shown(plan, options))
            return DONE
        is_text = options.output == "text"
        if is_text:
            print(_shown(plan, options), flush=True)
        if plan and not agreed(options, "apply this?", removals=plan.removes, may_ask=is_text):
            print("nothing was altered")
            return DONE
        journal = _journal(options, cluster)
        done = _applier(quotas, journal, cluster).apply(state, target)
    if not is_text:
        result = {**plan.rows(), "altered": done, "journal": str(journal)}
        print(rendered(options.output, str, str, lambda: [result]))
    elif done:
        print(f"{done} {'entity' if done == 1 else 'entities'} altered; journal: {journal}")
    return DONE


def _undo(options: argparse.Namespace) -> int:
    def agrees(run: Applied, state: QuotaState, target: Target) -> bool:
        print(f"run {run.number} of {run.at}{'' if run.is_ended else ', which did not end'}, taken back:")
        lines = list(_alterations(state, target))
        print("\n".join(lines) or "nothing of it is there any more", flush=True)
        return agreed(options, "undo this?")

    with QuotaAdmin(configuration(options)) as admin:
        cluster = _cluster_id(admin, options)
        journal = journal_of(options.journal, cluster)
        done = _applier(unit_quotas(admin, options), journal, cluster).undo(options.number, agrees=agrees)
    print("nothing was altered" if done is None else f"{done} {'entity' if done == 1 else 'entities'} altered")
    return DONE


def _export(options: argparse.Namespace) -> int:
    with QuotaAdmin(configuration(options)) as admin:
        state = unit_quotas(admin, options).state()
    sys.stdout.write(format_quota_file(state.asked, state.sources.capacity, in_order))
    return DONE


def _reconcile(options: argparse.Namespace) -> int:
    file = _only_worked_out(_parsed(options.file)) if options.file else QuotaFile()
    with QuotaAdmin(configuration(options)) as admin:
        quotas = unit_quotas(admin, options)
        state, target, _ = _planned(quotas, file)
        print("\n".join(_alterations(state, target)) or "nothing to work out anew", flush=True)
        if not options.dry_run:
            cluster = _cluster_id(admin, options)
            _applier(quotas, _journal(options, cluster), cluster).apply(state, target)
    return DONE


def _alterations(state: QuotaState, target: Target) -> Iterator[str]:
    for entity, ops in target.changes.items():
        before = state.written.get(entity, {})
        yield from alteration_lines(
            entity, before, {key: value for key, value in ops.items() if value != before.get(key)}
        )


def _planned(quotas: UnitQuotas, file: QuotaFile, *, prune: bool = False) -> tuple[QuotaState, Target, Plan]:
    state = quotas.state()
    before = state.asked
    after = asked_after(before, file, prune=prune)
    target = quotas.target(state, after, {**state.sources.capacity, **file.capacity})
    return state, target, make_plan(file, before, after, state.written, target.written)


def _only_worked_out(file: QuotaFile) -> QuotaFile:
    """The entries of a file in units that brokers do not enforce themselves."""
    entries = (
        FileEntry(
            entry.entity,
            {quota: value for quota, value in entry.wanted.items() if not quota.is_enforced},
            frozenset(),
            entry.line,
        )
        for entry in file.entries
    )
    return QuotaFile(tuple(entry for entry in entries if entry.wanted), file.capacity)


def _applier(quotas: UnitQuotas, journal: Path, cluster: str) -> Applier:
    return Applier(quotas, Journal(journal, warn), cluster=cluster, at=_now(), say=warn)


def _journal(options: argparse.Namespace, cluster: str) -> Path:
    return Path(options.journal) if options.journal is not None else journal_of(options.file or Path(), cluster)


def journal_of(place: Path, cluster: str) -> Path:
    """The journal of a cluster that lies in a folder or beside a file of quotas; any other file is a journal itself."""
    if place.suffix not in {".yaml", ".yml"} and not place.is_dir():
        return place
    folder = place if place.is_dir() else place.parent
    return folder / f"quotas.{sanitize(cluster)}.journal"


def _cluster_id(admin: QuotaAdmin, options: argparse.Namespace) -> str:
    return admin.describe_cluster(request_timeout=options.timeout).result().cluster_id or ""


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def _shown(plan: Plan, options: argparse.Namespace) -> str:
    return rendered(options.output, lambda: str(plan), lambda: str(plan), lambda: [plan.rows()])


def _check_plan(path: Path, now: dict[str, Any]) -> None:
    """Refuse when the cluster, the file or both no longer give what was looked at; others' quotas may have changed."""
    try:
        kept = json.loads(_read(path))
        promised = {key: kept[key] for key in now}
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"--plan {path}: this is no plan: {error!r}") from error
    if promised != now:
        raise ConflictError(
            f"{path} is no longer what would be done: quotas of the cluster or the file were changed since. "
            "Nothing was altered; make a new plan",
            (),
        )


def _file(options: argparse.Namespace) -> QuotaFile:
    file = _parsed(options.file)
    if options.prune and not options.allow_empty and not any(entry.wanted for entry in file.entries):
        raise ConfigError(
            f"{options.file}: it sets nothing, so --prune would remove every quota of the cluster; "
            "if that is meant, add --allow-empty"
        )
    return file


def _parsed(path: Path) -> QuotaFile:
    return parse_quota_file(_read(path), str(path))


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: {error}; name a file that can be read") from error


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}; name a file that can be written") from error
