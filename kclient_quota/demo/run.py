"""The demo from beginning to end."""

import contextlib
import datetime as dt
import json
import logging
import secrets
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from kclient_quota.demo import live, loop_report, plots, report
from kclient_quota.demo.closed_loop import MEMBERS, TOPIC, close_loop, embedded_route
from kclient_quota.demo.fleet import Fleet
from kclient_quota.demo.loop_report import LoopAct
from kclient_quota.demo.play import play
from kclient_quota.demo.scenes import plan
from kclient_quota.demo.stage import Stage, embedded, real
from kclient_quota.errors import ConfigError
from kclient_quota.spark.session import session
from kclient_quota.testing.children import Children, as_they_end

LONGEST_SCENE_S = 300.0
COMPARED = ("producers", "consumers", "transforms")
"""Scenes that are played by every flavour."""
PIPELINE = "pipeline"
_SPARK = {
    "spark.log.level": "ERROR",
    "spark.sql.shuffle.partitions": "1",
    "spark.driver.memory": "1g",
    # A minute of small batches is over before compiled code pays for its compilation.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """What `kclient-quota demo` was asked for.

    Attributes:
        bootstrap: a cluster of the user's, or None for the embedded broker.
        input_file: its lines are sent instead of generated messages, or None.
        seconds: length of every scene; all are played at once.
        quota: bytes per second.
        output: directory of the report.
        as_json: print summary.json instead of tables.
        scenes: names of those to play.
        record: where to write one picture of the first scene, as SVG, or None.
    """

    bootstrap: str | None = None
    input_file: Path | None = None
    seconds: float = 40.0
    quota: float = 51_200.0
    output: Path = Path("demo-report")
    as_json: bool = False
    scenes: tuple[str, ...] = COMPARED
    record: Path | None = None


def run(options: DemoOptions) -> list[report.Act | LoopAct]:
    """Play the scenes, print what they came to and write the report.

    Raises:
        ConfigError: options that make no sense.
        ClusterError: the cluster cannot be reached or refuses.
    """
    _check(options)
    console = Console(stderr=options.as_json)
    when = dt.datetime.now(tz=dt.UTC).strftime("%Y-%m-%d %H:%M UTC")
    acts: list[report.Act | LoopAct] = []
    with real(options.bootstrap) if options.bootstrap else embedded() as stage:
        compared = _compare(options, stage, console)
    if compared:
        console.print(live.verdicts([(act.scene, act.findings) for act in compared]))
    for act in compared:
        acts.append(act)
        console.print(live.result_table(act.scene, act.findings))
    if PIPELINE in options.scenes:
        loop = _close_loop(console)
        acts.append(loop)
        console.print(loop_report.table(loop))
    paths: tuple[Path, ...] = report.write(options.output, stage.name, when, acts)
    if options.as_json:
        print(json.dumps(report.summary(stage.name, when, acts), indent=2))  # noqa: T201 - what --json asks for
    if options.record and compared:
        options.record.write_text(plots.picture(compared[0].scene, compared[0].findings, when[:10]))
        paths += (options.record,)
    for path in paths:
        console.print(f"written: {path}")
    return acts


def _compare(options: DemoOptions, stage: Stage, console: Console) -> list[report.Act]:
    """Set up all scenes, then play them at once: they wait for quotas, and leave a machine nearly idle."""
    run_id = f"kq-demo-{secrets.token_hex(3)}"
    source = str(options.input_file.resolve()) if options.input_file else None
    names = [name for name in COMPARED if name in options.scenes]
    scenes = list(plan(stage, run_id, seconds=options.seconds, quota=options.quota, input_file=source, names=names))
    if not scenes:
        return []
    children = Children()
    with live.watching(console, scenes) as watcher, ThreadPoolExecutor(len(scenes)) as pool:
        try:
            played = [pool.submit(play, stage, scene, children, watcher(scene)) for scene in scenes]
            for each in as_they_end(played):
                each.result()
            return [report.Act(scene, future.result()) for scene, future in zip(scenes, played, strict=True)]
        except BaseException:
            children.end()  # so that nobody waits for what is left of the scenes
            raise


def _close_loop(console: Console) -> LoopAct:
    """Play the scene of the closed loop, which needs Spark.

    Raises:
        ConfigError: there is no Spark, or no Java for it.
    """
    began_s = time.monotonic()

    def say(text: str) -> None:
        console.print(f"{time.monotonic() - began_s:5.1f} s  {text}")

    console.print(f"\n{loop_report.TITLE}\n{loop_report.story(MEMBERS)}\n{loop_report.conditions()}")
    logging.getLogger("kclient_quota").addHandler(logging.NullHandler())  # the table says who was throttled
    spark = session("kclient-quota demo", "local[2]", _SPARK)
    say("Spark runs")
    with tempfile.TemporaryDirectory(prefix="kclient-quota-demo-") as folder, embedded_route(Path(folder)) as route:
        try:
            with Fleet(route.bootstrap_servers, TOPIC, MEMBERS) as fleet:
                closed = close_loop(spark, route, fleet, say)
        finally:
            spark.stop()
    return LoopAct(fleet.members, fleet.history, closed)


def _check(options: DemoOptions) -> None:
    if options.bootstrap and PIPELINE in options.scenes:
        raise ConfigError(
            f"--scene {PIPELINE} plays on the embedded broker, which has a receiver: leave out --bootstrap-server"
        )
    try:
        options.output.mkdir(parents=True, exist_ok=True)  # now, and not when all has been played
    except OSError as error:
        raise ConfigError(f"--output {options.output}: {error.strerror}; name a directory that can be made") from error
    if not 1 <= options.seconds <= LONGEST_SCENE_S:
        raise ConfigError(f"--seconds {options.seconds:g}: give 1 to {LONGEST_SCENE_S:g}")
    if options.input_file is not None:
        with contextlib.suppress(OSError):
            if options.input_file.read_bytes().strip():
                return
        raise ConfigError(f"--input {options.input_file}: not a readable file with lines in it")
