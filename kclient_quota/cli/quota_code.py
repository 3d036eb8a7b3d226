"""`kafka-quotas plan|diff|apply|undo|export|reconcile`: quotas as code."""

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from kclient_quota.admin.applying import Applier, ConflictError
from kclient_quota.admin.journal import Applied, Journal, is_begun
from kclient_quota.admin.output import alteration_lines, entity_row
from kclient_quota.admin.plan import Plan, asked_after, make_plan
from kclient_quota.admin.quota_file import (
    FileEntry,
    QuotaFile,
    format_quota_file,
    parse_quota_file,
    quota_document,
    readable_json,
)
from kclient_quota.admin.quotas import QuotaAdmin
from kclient_quota.admin.unit_quotas import QuotaState, Target, UnitQuotas, in_order
from kclient_quota.cli.printing import agreed, answer, as_json, is_utf8, notice, painted, rendered, say, warn
from kclient_quota.cli.progress import Progress, progress
from kclient_quota.cli.quota_options import (
    DIFFERENT,
    DONE,
    configuration,
    unit_quotas,
)
from kclient_quota.errors import ConfigError, misread
from kclient_quota.quota.entity import sanitize

_DETAILED_DIFFERENT = 2


def plan(options: argparse.Namespace) -> int:
    """Print what applying a file would change."""
    file = _file(options)
    with QuotaAdmin(configuration(options)) as admin:
        _, _, plan = _planned(unit_quotas(admin, options), file, prune=options.prune)
        cluster = _cluster_id(admin, options)
    if options.out:
        _write(options.out, json.dumps({"cluster": cluster, **plan.rows()}, indent=1))
    answer(painted(_shown(plan, options)))
    return _DETAILED_DIFFERENT if options.detailed_exitcode and plan else DONE


def diff(options: argparse.Namespace) -> int:
    """Print the lines that differ."""
    file = _file(options)
    with QuotaAdmin(configuration(options)) as admin:
        _, _, plan = _planned(unit_quotas(admin, options), file, prune=options.prune)
    lines = [*map(str, plan.changes), *plan.derived_lines()]
    text = rendered(options.output, lambda: "\n".join(lines), str, lambda: [plan.rows()])
    if text:
        answer(painted(text))
    if not plan:
        notice("no differences")
        return DONE
    return _DETAILED_DIFFERENT if options.detailed_exitcode else DIFFERENT


def apply(options: argparse.Namespace) -> int:
    """Show the plan, ask, carry it out."""
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
            say(painted(_shown(plan, options)))
        if plan and not agreed(options, "apply this?", removals=plan.removes, may_ask=is_text):
            print("nothing was altered")
            return DONE
        journal = _journal(options, cluster)
        done = _apply(quotas, journal, cluster, state, target, options.file)
    if not is_text:
        result = {**plan.rows(), "altered": done, "journal": str(journal)}
        say(rendered(options.output, str, str, lambda: [result]))
    elif done:
        say(f"{_entities(done)} altered; journal: {journal}")
    return DONE


def undo(options: argparse.Namespace) -> int:
    """Show what a run did, ask, take it back."""
    is_text = options.output == "text"
    seen: list[Progress] = []
    result: dict[str, Any] = {}

    def agrees(run: Applied, state: QuotaState, target: Target) -> bool:
        changes = _alteration_rows(state, target)
        result.update(run=run.number, at=run.at, file=run.file, ended=run.is_ended, changes=changes)
        if is_text:
            file = "" if run.file is None else f", by {run.file}"
            say(f"run {run.number} of {run.at}{file}{'' if run.is_ended else ', which did not end'}, to be taken back:")
            lines = list(_alterations(state, target))
            say(painted("\n".join(lines)) or "nothing of it is there any more")
        is_agreed = agreed(options, "undo this?", may_ask=is_text)
        if is_agreed:
            seen.append(during.enter_context(progress("taking back")))
        return is_agreed

    def tell(done: int, whole: int) -> None:
        _tell(seen[0], done, whole)

    with QuotaAdmin(configuration(options)) as admin, ExitStack() as during:
        cluster = _cluster_id(admin, options)
        journal, file = (options.journal_file, None) if options.journal_file else journal_of(options.journal, cluster)
        applier = _applier(unit_quotas(admin, options), journal, cluster, tell, file)
        done = applier.undo(options.number, agrees=agrees)
    words = "nothing was altered" if done is None else f"{_entities(done)} altered"
    say(rendered(options.output, lambda: words, str, lambda: [{**result, "altered": done or 0}]))
    return DONE


def export(options: argparse.Namespace) -> int:
    """Print a file of what is configured."""
    with QuotaAdmin(configuration(options)) as admin:
        state = unit_quotas(admin, options).state()
    if options.json:
        print(readable_json(as_json(quota_document(state.asked, state.sources.capacity, in_order))))
    else:
        # files are read as UTF-8: where that is not what is written, ASCII is, which is the same everywhere
        text = format_quota_file(state.asked, state.sources.capacity, in_order, is_ascii=not is_utf8(sys.stdout))
        sys.stdout.write(text)
    return DONE


def reconcile(options: argparse.Namespace) -> int:
    """Work bps and shares out anew."""
    file = _only_worked_out(_parsed(options.file)) if options.file else QuotaFile()
    with QuotaAdmin(configuration(options)) as admin:
        quotas = unit_quotas(admin, options)
        state, target, _ = _planned(quotas, file)
        if options.output == "text":
            say(painted("\n".join(_alterations(state, target))) or "nothing to work out anew")
        done = 0
        if not options.dry_run:
            cluster = _cluster_id(admin, options)
            done = _apply(quotas, _journal(options, cluster), cluster, state, target, options.file)
    if options.output != "text":
        result = {"changes": _alteration_rows(state, target), "altered": done}
        say(rendered(options.output, str, str, lambda: [result]))
    return DONE


def _entities(count: int) -> str:
    return f"{count} {'entity' if count == 1 else 'entities'}"


def _alterations(state: QuotaState, target: Target) -> Iterator[str]:
    for entity, ops in target.changes.items():
        before = state.written.get(entity, {})
        yield from alteration_lines(
            entity, before, {key: value for key, value in ops.items() if value != before.get(key)}
        )


def _alteration_rows(state: QuotaState, target: Target) -> list[dict[str, Any]]:
    return [
        {"entity": entity_row(entity), "quota": key, "before": before, "after": value}
        for entity, ops in target.changes.items()
        for key, value in sorted(ops.items())
        if (before := state.written.get(entity, {}).get(key)) != value
    ]


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


def _apply(
    quotas: UnitQuotas, journal: Path, cluster: str, state: QuotaState, target: Target, file: Path | None
) -> int:
    name = None if file is None else file.name if file.is_file() else "-"
    with progress("altering") as drawn:
        tell = partial(_tell, drawn)
        return _applier(quotas, journal, cluster, tell, name).apply(state, target)


def _tell(drawn: Progress, done: int, whole: int) -> None:
    drawn.tell(done, whole, "entities")


def _applier(
    quotas: UnitQuotas, journal: Path, cluster: str, tell: Callable[[int, int], None], file: str | None
) -> Applier:
    return Applier(quotas, Journal(journal, warn), cluster=cluster, at=_now(), say=warn, tell=tell, file=file)


def _journal(options: argparse.Namespace, cluster: str) -> Path:
    if options.journal is not None:
        return Path(options.journal)
    # what comes through a pipe lies nowhere: its journal is in this folder
    return _journal_in(options.file.parent if options.file and options.file.is_file() else Path(), cluster)


def journal_of(place: Path, cluster: str) -> tuple[Path, str | None]:
    """The journal of a cluster that lies in a folder or beside a file of quotas, and that file's name.

    A file that begins as a journal does is one itself, whatever its name, and so is one that no journal lies beside.
    """
    if place.is_dir():
        return _journal_in(place, cluster), None
    beside = _journal_in(place.parent, cluster)
    is_named_so = place == Path("-") or place.suffix.lower() in {".yaml", ".yml"}
    if is_named_so or (place.is_file() and beside.is_file() and not is_begun(place)):
        return beside, place.name
    return place, None


def _journal_in(folder: Path, cluster: str) -> Path:
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
        remedy = f"make one with kafka-quotas plan FILE --out {path}"
        raise ConfigError(f"--plan {path}: this is no plan: {misread(error)}; {remedy}") from error
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
        is_input = path == Path("-")
        source = 0 if is_input else path
        with open(source, encoding="utf-8", closefd=not is_input) as file:
            return file.read()
    except (OSError, ValueError) as error:  # no text, or a name that no file can have
        raise ConfigError(f"{path}: {error}; name a file that can be read") from error


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}; name a file that can be written") from error
