"""`kclient-quota pipeline`: Spark jobs over client telemetry."""

import argparse
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kclient_quota.cli.printing import ListHelpFormatter, as_json, say
from kclient_quota.cli.progress import progress
from kclient_quota.cli.quantities import rate, servers
from kclient_quota.cli.quota_options import configuration
from kclient_quota.cli.running import ctrl_c_is_one
from kclient_quota.errors import ConfigError, KclientQuotaError

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

_JOBS = {
    "points": "every data point as a row of the flat table",
    "usage": "rates and throttle times by window, user, client-id and broker, against the quota",
    "throttled": "sessions of throttling: who, when, how deep, by which quota",
    "outliers": "who does most on each broker, and the default quota that would contain them",
    "recommend": "a file of quotas for kafka-quotas plan and apply",
    "whatif": "who would have been throttled, and for how long, had --quotas been in force",
    "gains": "who would gain most from compression or larger batches",
    "sql": "--query over what jobs have written into --input, printed; without one: which views there are",
    "report": "an HTML file of what usage, throttled, outliers and recommend have written into the directory --input",
    "compact": "what a job has written into --input, in few files",
    "simulate": "a sweep of the simulation over executors, a row a run; no input",
}
_OF_FILES = ("report", "compact", "sql")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    parser.formatter_class = ListHelpFormatter
    parser.epilog = "jobs:\n" + "\n".join(f"  {name:10} {what}" for name, what in _JOBS.items())
    parser.add_argument("job", choices=tuple(_JOBS), metavar="NAME", help="one of the jobs below")
    for add in (_add_source, _add_output, _add_lengths, _add_spark, _add_stream, _add_policy, _add_sweep):
        add(parser)


def _add_source(parser: argparse.ArgumentParser) -> None:
    source = parser.add_mutually_exclusive_group()
    source.add_argument("--input", metavar="DIR", help="what the receiver has written")
    source.add_argument("--topic", metavar="NAME,...", help="topics of pushes, instead of files")
    parser.add_argument("--bootstrap-server", type=servers, metavar="HOST:PORT", help="the cluster that has the topics")
    parser.add_argument(
        "--command-config", type=Path, metavar="FILE", help="properties for the connection, as Kafka's tools take them"
    )
    parser.add_argument(
        "--connector",
        default="python",
        choices=("python", "jvm"),
        help="what reads topics: our own source, paced by the quota (python, default), or Spark's own connector (jvm)",
    )
    parser.add_argument(
        "--connector-jars", metavar="DIR", help="the jvm connector's jars, where Maven Central has none for this Spark"
    )
    parser.add_argument(
        "--source-option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="of the source of topics, such as startingTimestamp=1800000000000; again for more",
    )
    parser.add_argument(
        "--format",
        default="jsonl",
        choices=("jsonl", "parquet", "pushes", "usage"),
        help="default: %(default)s; usage: what that job has written, for recommend and whatif",
    )
    parser.add_argument("--query", metavar="SELECT", help="of sql: a query in Spark's SQL")


def _add_output(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--output",
        metavar="PATH",
        help="new directory; of recommend and report a file; with --table the name of a table; sql has none",
    )
    parser.add_argument("--table", action="store_true", help="--output is a table of the session's catalog")
    parser.add_argument(
        "--output-format",
        default="parquet",
        metavar="NAME",
        help="what Spark writes (default: %(default)s); delta, ...",
    )
    parser.add_argument(
        "--partition-by", default="", metavar="NAME,...", help="columns that become directories; date and hour, too"
    )
    parser.add_argument("--files", type=int, metavar="N", help="so many files a batch at most; of compact, a directory")
    parser.add_argument("--json", action="store_true", help="print what came of it as JSON")
    parser.add_argument("--dead-letters", metavar="DIR", help="for what cannot be decoded, with the reason")


def _add_lengths(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--quotas", metavar="FILE", help="what kafka-quotas export printed: the limits in force; of whatif, to try"
    )
    parser.add_argument(
        "--window", metavar="TIME", help="of usage (default: 1 minute, or the push interval if that is longer)"
    )
    parser.add_argument("--late", default="2 minutes", metavar="TIME", help="how late pushes may come (%(default)s)")
    parser.add_argument(
        "--gap", metavar="TIME", help="how long a pause ends a session of throttling (default: 2.5 push intervals)"
    )
    parser.add_argument(
        "--push-interval", metavar="TIME", help="the longest of the clients, for streams (default: as seen)"
    )
    parser.add_argument(
        "--clock-tolerance",
        default="2 minutes",
        metavar="TIME",
        help="clients whose clocks are further off count when they were received; none: clocks are right (%(default)s)",
    )


def _add_spark(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--master", metavar="URL", help="such as local[2], spark://host:7077 or sc://host (default: local[*])"
    )
    parser.add_argument("--conf", action="append", default=[], metavar="KEY=VALUE", help="Spark's own; again for more")
    parser.add_argument(
        "--spark-log",
        metavar="LEVEL",
        choices=("ALL", "TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL", "OFF"),
        help="what Spark tells besides, such as ERROR or INFO (default: FATAL, what goes wrong is one line; under "
        "spark-submit its own)",
    )


def _add_stream(parser: argparse.ArgumentParser) -> None:
    stream = parser.add_argument_group("as a stream")
    stream.add_argument("--checkpoint", metavar="DIR", help="where a stream keeps its state; makes the job a stream")
    stream.add_argument("--max-rows", type=int, metavar="N", help="the most records of a topic in a batch")
    stream.add_argument("--endless", action="store_true", help="go on when it has caught up, until Ctrl-C")
    stream.add_argument("--trigger", metavar="TIME", help="with --endless: how often a batch begins")


def _add_policy(parser: argparse.ArgumentParser) -> None:
    top = parser.add_argument_group("only outliers")
    top.add_argument("--top", type=int, default=3, metavar="K", help="default: %(default)s")
    limits = parser.add_argument_group("outliers and recommend")
    limits.add_argument(
        "--capacity",
        "--broker-capacity",
        type=rate,
        metavar="BYTES",
        help="what one broker can do in a second: outliers are shares of it, and recommended quotas of those who use a "
        "broker add up to no more",
    )
    policy = parser.add_argument_group("only recommend")
    policy.add_argument("--entity", default="client-id", help="client-id (default), user or user,client-id")
    policy.add_argument(
        "--most-bytes-per-second", type=rate, metavar="BYTES", help="the highest quota (default: whatever is wanted)"
    )
    policy.add_argument(
        "--most-growth",
        type=float,
        default=4.0,
        metavar="TIMES",
        help="who waits for the quota or is throttled counts for so many times what it sent at most "
        "(default: %(default)s)",
    )
    policy.add_argument("--quantile", type=float, default=0.95, help="of a client's demand (default: %(default)s)")
    policy.add_argument("--headroom", type=float, default=1.25, help="quota by demand (default: %(default)s)")
    policy.add_argument(
        "--default-quantile", type=float, default=0.9, help="part that the default serves (default: %(default)s)"
    )
    policy.add_argument("--most-overrides", type=int, default=1_000, help="default: %(default)s")
    policy.add_argument(
        "--hold-out", type=float, default=0.0, help="last part of the time, to try the quotas on (default: %(default)s)"
    )

    gain = parser.add_argument_group("only gains")
    gain.add_argument(
        "--linger", default="100 ms", metavar="TIME", help="how long records may wait for a batch (%(default)s)"
    )


def _add_sweep(parser: argparse.ArgumentParser) -> None:
    sweep = parser.add_argument_group("only simulate")
    sweep.add_argument(
        "--vary",
        action="append",
        default=[],
        type=_vary,
        metavar="NAME=VALUE,...",
        help="a parameter of the simulation and its values, again for more: clients, quota, brokers, told, demand, ...",
    )
    sweep.add_argument("--seeds", type=int, default=1, help="runs of every combination (default: %(default)s)")


def run(options: argparse.Namespace) -> int:
    """Run the job.

    Returns:
        the exit status, 0.

    Raises:
        KclientQuotaError: one line of what is wrong.
    """
    _check(options)
    with progress(options.job) as drawn:
        spark, work = _started(options)
        drawn.ask(partial(_tasks, spark))
        stops = True
        try:
            with ctrl_c_is_one():
                words = work()
        except KeyboardInterrupt:
            stops = False  # Spark ends by itself after this process, and nobody who has pressed Ctrl-C waits for it
            raise
        finally:
            drawn.ask(str)
            if stops:
                spark.stop()
    tell = print if options.job == "sql" else say  # the others have written their rows already
    tell(as_json({"job": options.job, "output": options.output, "said": words}) if options.json else words)
    return 0


def _started(options: argparse.Namespace) -> "tuple[SparkSession, Callable[[], str]]":
    """A session, and the job that is to run in it; what can be wrong with the options is found before Spark starts."""
    try:
        from kclient_quota.spark.session import session  # noqa: PLC0415 - its libraries are an extra

        plan = None if options.job in _OTHERS else _plan(options)
        settings = {**_log_level(options), **_connector(options), **dict(_pairs("--conf", options.conf))}
        spark = session(f"kclient-quota {options.job}", options.master, settings)
        from kclient_quota.spark.pipeline import run as run_plan  # noqa: PLC0415 - as above
    except ModuleNotFoundError as error:
        raise ConfigError(f"the Spark pipeline needs {error.name}: pip install 'kclient-quota[spark]'") from error
    return spark, partial(_OTHERS[options.job], spark, options) if plan is None else partial(run_plan, spark, plan)


def _tasks(spark: "SparkSession") -> str:
    """What Spark is at, in words; a session of Spark Connect does not tell."""
    tracker = spark.sparkContext.statusTracker()
    stages = [found for number in tracker.getActiveStageIds() if (found := tracker.getStageInfo(number)) is not None]
    return ", ".join(
        f"stage {stage.stageId}: {stage.numCompletedTasks} of {stage.numTasks} tasks" for stage in stages[:3]
    )


def _plan(options: argparse.Namespace) -> Any:
    """What to run; checked before Spark starts."""
    from kclient_quota.spark.jobs.recommend import Policy  # noqa: PLC0415 - its libraries are an extra
    from kclient_quota.spark.plan import Plan  # noqa: PLC0415 - as above

    policy = Policy(
        options.entity,
        options.quantile,
        options.headroom,
        options.default_quantile,
        most_growth=options.most_growth,
        most_bytes_per_second=options.most_bytes_per_second,
        broker_capacity=options.capacity,
    )
    return Plan(
        job=options.job,
        source=options.topic or options.input,
        client=configuration(options) if options.topic else None,
        source_options=dict(_pairs("--source-option", options.source_option)),
        output=options.output,
        output_format=options.output_format,
        is_table=options.table,
        partition_by=tuple(name.strip() for name in options.partition_by.split(",") if name.strip()),
        files=options.files,
        source_format=options.format,
        dead_letters=options.dead_letters,
        quotas=options.quotas,
        window=options.window,
        late=options.late,
        gap=options.gap,
        push_interval=options.push_interval,
        clock_tolerance=None if options.clock_tolerance == "none" else options.clock_tolerance,
        checkpoint=options.checkpoint,
        is_endless=options.endless,
        trigger=options.trigger,
        k=options.top,
        capacity=options.capacity,
        policy=policy,
        most_overrides=options.most_overrides,
        hold_out=options.hold_out,
        linger=options.linger,
        connector=options.connector,
        max_rows=options.max_rows,
    )


def _pairs(option: str, texts: list[str]) -> list[tuple[str, str]]:
    found = [text.partition("=") for text in texts]
    for name, mark, _ in found:
        if not mark or not name:
            raise ConfigError(f"{option} {name}: write KEY=VALUE")
    return [(name, value) for name, _, value in found]


def _log_level(options: argparse.Namespace) -> dict[str, str]:
    """What Spark says besides: nothing, unless asked for or started by spark-submit, whose own settings hold."""
    from kclient_quota.spark.session import is_submitted  # noqa: PLC0415 - its libraries are an extra

    level = options.spark_log or (None if is_submitted() else "FATAL")
    return {} if level is None else {"spark.log.level": level}


def _connector(options: argparse.Namespace) -> dict[str, str]:
    """Spark's settings that bring the connector which is asked for."""
    if options.connector != "jvm":
        return {}
    from kclient_quota.spark.kafka.jvm_source import connector_settings  # noqa: PLC0415 - its libraries are an extra

    return connector_settings(options.connector_jars)


def _check(options: argparse.Namespace) -> None:
    if options.job != "simulate" and not (options.input or options.topic):
        raise ConfigError(f"{options.job}: name what it reads with --input or --topic")
    if options.job != "sql" and not options.output:
        raise ConfigError(f"{options.job}: say where to write with --output")
    if options.job in _OF_FILES and not options.input:
        raise ConfigError(f"{options.job}: name the directory of what jobs have written with --input")
    if options.job == "simulate" and (options.input or options.topic):
        raise ConfigError("simulate reads nothing: leave out --input and --topic")


def _vary(text: str) -> tuple[str, list[str]]:
    name, mark, values = text.partition("=")
    if not mark:
        raise argparse.ArgumentTypeError(f"NAME=VALUE,... as clients=2,8,32, not {text!r}")
    return name, [value.strip() for value in values.split(",") if value.strip()]


def _write_report(spark: "SparkSession", options: argparse.Namespace) -> str:
    from kclient_quota.spark.report import write_report  # noqa: PLC0415 - its libraries are an extra

    return write_report(spark, Path(options.input), Path(options.output))


def _simulate(spark: "SparkSession", options: argparse.Namespace) -> str:
    from kclient_quota.spark.jobs.simulate import Sweep, write_sweep  # noqa: PLC0415 - as above

    return write_sweep(spark, Sweep(dict(options.vary), options.seeds), options.output)


def _compact(spark: "SparkSession", options: argparse.Namespace) -> str:
    from kclient_quota.spark.streaming.output import compact  # noqa: PLC0415 - as above

    return compact(spark, options.input, options.output, options.files)


def _sql(spark: "SparkSession", options: argparse.Namespace) -> str:
    from kclient_quota.spark.views import answer  # noqa: PLC0415 - as above

    return answer(spark, options.input, options.query)


_OTHERS: "dict[str, Callable[[SparkSession, argparse.Namespace], str]]" = {
    "report": _write_report,
    "simulate": _simulate,
    "compact": _compact,
    "sql": _sql,
}


def main() -> int:
    """The job as a script of its own, for spark-submit."""
    parser = argparse.ArgumentParser(prog="pipeline")
    add_arguments(parser)
    try:
        return run(parser.parse_args())
    except KclientQuotaError as error:
        print(f"pipeline: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
