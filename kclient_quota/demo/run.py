"""The demo from beginning to end."""

import contextlib
import datetime as dt
import json
import secrets
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from kclient_quota.demo import live, report
from kclient_quota.demo.play import play
from kclient_quota.demo.scenes import Finding, Scene, plan
from kclient_quota.demo.stage import embedded, real
from kclient_quota.errors import ConfigError

LONGEST_SCENE_S = 25.0


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """What `kclient-quota demo` was asked for.

    Attributes:
        bootstrap: a cluster of the user's, or None for the embedded broker.
        input_file: its lines are sent instead of generated messages, or None.
        seconds: length of each scene.
        quota: bytes per second.
        output: directory of the report.
        as_json: print summary.json instead of tables.
    """

    bootstrap: str | None = None
    input_file: Path | None = None
    seconds: float = 24.0
    quota: float = 51_200.0
    output: Path = Path("demo-report")
    as_json: bool = False


def run(options: DemoOptions) -> list[report.Act]:
    """Play all scenes, print what they came to and write the report.

    Raises:
        ConfigError: options that make no sense.
        ClusterError: the cluster cannot be reached or refuses.
    """
    _check(options)
    console = Console(stderr=options.as_json)
    run_id = f"kq-demo-{secrets.token_hex(3)}"
    when = dt.datetime.now(tz=dt.UTC).strftime("%Y-%m-%d %H:%M UTC")
    acts = []
    with real(options.bootstrap) if options.bootstrap else embedded() as stage:
        source = str(options.input_file.resolve()) if options.input_file else None
        for scene in plan(stage, run_id, seconds=options.seconds, quota=options.quota, input_file=source):

            def played(show: live.Watcher, scene: Scene = scene) -> list[Finding]:
                return play(stage, scene, show)

            findings = live.watch(console, scene, played)
            acts.append(report.Act(scene, findings))
            console.print(live.result_table(scene, findings))
        paths = report.write(options.output, stage.name, when, acts)
    if options.as_json:
        print(json.dumps(report.summary(stage.name, when, acts), indent=2))  # noqa: T201 - what --json asks for
    for path in paths:
        console.print(f"written: {path}")
    return acts


def _check(options: DemoOptions) -> None:
    if not 1 <= options.seconds <= LONGEST_SCENE_S:
        raise ConfigError(f"--seconds {options.seconds:g}: give 1 to {LONGEST_SCENE_S:g}")
    if options.quota <= 0:
        raise ConfigError(f"--quota {options.quota:g}: a quota is greater than 0")
    if options.input_file is not None:
        with contextlib.suppress(OSError):
            if options.input_file.read_bytes().strip():
                return
        raise ConfigError(f"--input {options.input_file}: not a readable file with lines in it")
