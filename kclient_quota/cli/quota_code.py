"""`kafka-quotas plan|diff|apply|undo|export|reconcile`: quotas as code."""

import argparse
import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kclient_quota.admin.applying import Applier, ConflictError
from kclient_quota.admin.journal import Journal
from kclient_quota.admin.output import alteration_lines
from kclient_quota.admin.plan import Plan, asked_after, make_plan
from kclient_quota.admin.quota_file import FileEntry, QuotaFile, format_quota_file, parse_quota_file
from kclient_quota.admin.quotas import QuotaAdmin
from kclient_quota.admin.unit_quotas import QuotaState, Target, UnitQuotas, in_order
from kclient_quota.cli.printing import rendered
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
    for parser in (apply, reconcile):
        parser.add_argument("--journal", type=Path, metavar="FILE", help="default: quotas.journal beside the file")
    for parser in (plan, diff, apply):
        parser.add_argument("--prune", action="store_true", help="remove what the file does not set, everywhere")
        parser.add_argument("--output", choices=("text", "json", "yaml"), default="text")
    for parser, run in ((plan, _plan), (diff, _diff), (apply, _apply), (reconcile, _reconcile)):
        parser.set_defaults(run=run)
    undo = commands.add_parser("undo", help="take back the last run of `apply` that a journal has", epilog=EXIT_CODES)
    undo.add_argument("journal", type=Path, metavar="JOURNAL", nargs="?", default=Path("quotas.journal"))
    undo.set_defaults(run=_undo)
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
    file = _file(options.file)
    with QuotaAdmin(configuration(options)) as admin:
        _, _, plan = _planned(unit_quotas(admin, options), file, prune=options.prune)
        cluster = _cluster_id(admin, options)
    if options.out:
        _write(options.out, json.dumps({"cluster": cluster, **plan.rows()}, indent=1, ensure_ascii=False))
    print(_shown(plan, options))
    return DONE


def _diff(options: argparse.Namespace) -> int:
    file = _file(options.file)
    with QuotaAdmin(configuration(options)) as admin:
        _, target, plan = _planned(unit_quotas(admin, options), file, prune=options.prune)
    text = rendered(options.output, lambda: "\n".join(map(str, plan.changes)), str, lambda: [plan.rows()])
    if text:
        print(text)
    return DIFFERENT if plan.changes or target.changes else DONE


def _apply(options: argparse.Namespace) -> int:
    file = _file(options.file)
    with QuotaAdmin(configuration(options)) as admin:
        quotas = unit_quotas(admin, options)
        state, target, plan = _planned(quotas, file, prune=options.prune)
        cluster = _cluster_id(admin, options)
        if options.plan:
            _check_plan(options.plan, {"cluster": cluster, **plan.rows()})
        if options.validate_only:
            quotas.write(state, target, validate_only=True)
            print(_shown(plan, options))
            return DONE
        done = _applier(quotas, options, cluster).apply(state, target)
    print(_shown(plan, options))
    if options.output == "text" and done:
        print(f"{done} entities altered; journal: {_journal(options)}")
    return DONE


def _undo(options: argparse.Namespace) -> int:
    with QuotaAdmin(configuration(options)) as admin:
        applier = Applier(
            unit_quotas(admin, options),
            Journal(options.journal),
            cluster=_cluster_id(admin, options),
            at=_now(),
        )
        print(f"{applier.undo()} entities altered")
    return DONE


def _export(options: argparse.Namespace) -> int:
    with QuotaAdmin(configuration(options)) as admin:
        state = unit_quotas(admin, options).state()
    sys.stdout.write(format_quota_file(state.asked, state.sources.capacity, in_order))
    return DONE


def _reconcile(options: argparse.Namespace) -> int:
    file = _only_worked_out(_file(options.file)) if options.file else QuotaFile()
    with QuotaAdmin(configuration(options)) as admin:
        quotas = unit_quotas(admin, options)
        state, target, _ = _planned(quotas, file)
        lines = [
            line
            for entity, ops in target.changes.items()
            for line in alteration_lines(entity, state.written.get(entity, {}), ops)
        ]
        if not options.dry_run:
            _applier(quotas, options, _cluster_id(admin, options)).apply(state, target)
    if lines:
        print("\n".join(lines))
    return DONE


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


def _applier(quotas: UnitQuotas, options: argparse.Namespace, cluster: str) -> Applier:
    return Applier(quotas, Journal(_journal(options)), cluster=cluster, at=_now())


def _journal(options: argparse.Namespace) -> Path:
    if options.journal is not None:
        return Path(options.journal)
    return (options.file.parent if options.file else Path()) / "quotas.journal"


def _cluster_id(admin: QuotaAdmin, options: argparse.Namespace) -> str:
    return admin.describe_cluster(request_timeout=options.timeout).result().cluster_id or ""


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def _shown(plan: Plan, options: argparse.Namespace) -> str:
    return rendered(options.output, lambda: str(plan), lambda: str(plan), lambda: [plan.rows()])


def _check_plan(path: Path, now: dict[str, Any]) -> None:
    """Refuse when the cluster, the file or both no longer give the plan that was looked at."""
    try:
        kept = json.loads(_read(path))
    except ValueError as error:
        raise ConfigError(f"--plan {path}: this is no plan: {error}") from error
    if kept != now:
        raise ConflictError(
            f"{path} is no longer what would be done: quotas of the cluster or the file were changed since. "
            "Nothing was altered; make a new plan",
            (),
        )


def _file(path: Path) -> QuotaFile:
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
