"""Spark's own `from_protobuf` beside our decoder, by a Python that has the PySpark which its artefact is made for.

Run by `python -m benchmarks.spark_decode --from-protobuf PYTHON`: PYTHON is of an environment with

    pip install pyspark==3.4.1 'pandas<2' 'numpy<2'

since spark-protobuf_2.12:3.4.1 is what Maven could be asked for (see `ARTEFACT`); an artefact of the Spark that this
package runs on would be better. This module is also the program that such a Python runs; so it imports nothing of ours.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SPARK = "3.4.1"
ARTEFACT = (
    f"https://repo1.maven.org/maven2/org/apache/spark/spark-protobuf_2.12/{SPARK}/spark-protobuf_2.12-{SPARK}.jar"
)
_OPENED = ("--add-opens=java.base/java.nio=ALL-UNNAMED", "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED")


class FromProtobuf:
    """A session of that Spark, in a process of its own that waits for its turns.

    Args:
        python: the interpreter.
        pushes: Parquet with `value`, `client_instance_id`, `client_id`.
        message: full name of the request's message.
        descriptor_set: that it is in.
        folder: for the artefact and the descriptors.

    Raises:
        RuntimeError: it does not start; says why.
    """

    def __init__(self, python: str, pushes: Path, message: str, descriptor_set: bytes, folder: Path) -> None:
        jar, described = folder / "spark-protobuf.jar", folder / "view.desc"
        try:
            with urllib.request.urlopen(ARTEFACT, timeout=60) as answer:
                jar.write_bytes(answer.read())
        except OSError as error:
            raise RuntimeError(f"{ARTEFACT}: {error}") from error
        described.write_bytes(descriptor_set)
        given = [str(Path(__file__)), str(jar), str(described), message, str(pushes)]
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK_", "PYTHON"))}
        self._log = (folder / "from_protobuf.log").open("w+")
        self._process = subprocess.Popen(  # the user's own Python
            [python, *given],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env=environment,
        )
        self.jvm = int(self._answer())

    def run(self) -> float:
        """Seconds that one run takes."""
        return float(self._ask("run"))

    def found(self) -> tuple[int, float]:
        """How many points it finds, and the sum of their values."""
        points, total = json.loads(self._ask("found"))
        return int(points), float(total)

    def close(self) -> None:
        """End it."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process.wait(60)
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._log.close()

    def _ask(self, what: str) -> str:
        assert self._process.stdin is not None, "a pipe"
        self._process.stdin.write(f"{what}\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> str:
        assert self._process.stdout is not None, "a pipe"
        line = self._process.stdout.readline()
        if not line:
            self._process.wait(60)
            self._log.seek(0)
            said = self._log.read().strip().splitlines()
            raise RuntimeError(f"from_protobuf ended: {said[-1] if said else 'nothing said'}")
        return line


def main(arguments: Sequence[str]) -> int:
    """Be that process."""
    from pyspark.sql import SparkSession  # noqa: PLC0415 # of the other environment

    jar, described, message, pushes = arguments
    os.environ["PYSPARK_PYTHON"] = sys.executable
    with tempfile.TemporaryDirectory() as folder:
        builder = SparkSession.builder.master("local[2]").config("spark.jars", jar).config("spark.ui.enabled", "false")
        # with them on, Spark 3.4 loses the column that is exploded
        for name in ("optimizer.expression.nestedPruning", "optimizer.nestedSchemaPruning"):
            builder = builder.config(f"spark.sql.{name}.enabled", "false")
        builder = builder.config("spark.driver.memory", "2g").config("spark.sql.warehouse.dir", folder)
        spark = builder.config("spark.driver.extraJavaOptions", " ".join(_OPENED)).getOrCreate()
        spark.sparkContext.setLogLevel("ERROR")
        gateway: Any = spark.sparkContext._gateway  # noqa: SLF001 # py4j has no other way to the JVM's own id
        print(gateway.jvm.java.lang.ProcessHandle.current().pid(), flush=True)
        for line in sys.stdin:
            frame = flat(spark.read.parquet(pushes), message, described)
            if line.strip() == "run":
                began = time.monotonic()
                frame.write.format("noop").mode("overwrite").save()
                print(time.monotonic() - began, flush=True)
            else:
                row = frame.selectExpr("count(*)", "sum(value)").collect()[0]
                print(json.dumps([row[0], row[1]]), flush=True)
        spark.stop()
    return 0


def flat(pushes: "DataFrame", message: str, described: str) -> "DataFrame":
    """The ten columns of the variant "ten columns", a row a point."""
    from pyspark.sql.protobuf.functions import from_protobuf  # noqa: PLC0415 # as above

    read = pushes.withColumn("request", from_protobuf("value", message, described))
    for name, of in (("resource", "request.resource_metrics"), ("scope", "resource.scope_metrics")):
        read = read.selectExpr("client_instance_id", "client_id", f"explode({of}) as {name}")
    read = read.selectExpr("client_instance_id", "client_id", "explode(scope.metrics) as metric")
    number = "p -> struct('{0}' as kind, p.attributes as attributes, p.time_unix_nano as nanos, {1} as value, {2} as n)"
    value = "coalesce(p.as_double, cast(p.as_int as double))"
    lists = [
        f"coalesce(transform(metric.{kind}.data_points, {number.format(kind, of, n)}), array())"
        for kind, of, n in (
            ("gauge", value, "cast(null as bigint)"),
            ("sum", value, "cast(null as bigint)"),
            ("histogram", "cast(null as double)", "p.count"),
        )
    ]
    each = read.selectExpr(
        *("client_instance_id", "client_id", "metric.name as metric", "metric.unit as unit"),
        "coalesce(metric.sum.aggregation_temporality, metric.histogram.aggregation_temporality) as temporality",
        f"explode(concat({', '.join(lists)})) as point",
    )
    return each.selectExpr(
        *("client_instance_id", "client_id"),
        "filter(point.attributes, a -> a.key = 'node_id')[0].value.string_value as broker",
        *("metric", "unit", "point.kind as kind", "temporality", "point.nanos div 1000000 as time_ms"),
        *("point.value as value", "point.n as count"),
    )


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
