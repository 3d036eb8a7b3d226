"""Every job through Spark Connect: a client that has no JVM of its own, and a server out of the PySpark package."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.required import require
from tests.spark.pushes import RATE, steady, write

DRIVER = Path(__file__).with_name("connect_driver.py")
NEEDED = ("grpc", "grpc_status", "google.rpc", "zstandard", "matplotlib", "jinja2")
QUOTAS = "version: 1\nquotas:\n  - {names: {user: u}, set: {producer_byte_rate: 50000}}\n"


@pytest.mark.timeout(600)
def test_jobs_through_spark_connect(spark, tmp_path):
    import pyspark

    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:  # `make spark-versions` has all of them
        pytest.skip(f"Spark Connect needs {missing[0]}: pip install 'pyspark[connect]'")
    jars = list((Path(pyspark.__file__).parent / "jars").glob("spark-connect_*.jar"))
    require(None if jars else "this PySpark comes without the jar of Spark Connect's server")
    source = write(tmp_path / "pushes", steady(2, span_s=60))
    (tmp_path / "q.yaml").write_text(QUOTAS)
    environment = {
        **os.environ,
        "SPARK_REMOTE": "local[1]",
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
    }
    given = [source, str(tmp_path / "q.yaml"), str(tmp_path / "out")]
    (tmp_path / "out").mkdir()
    done = subprocess.run(
        [sys.executable, str(DRIVER), *given],
        capture_output=True,
        text=True,
        check=False,
        timeout=500,
        env=environment,
    )
    assert done.returncode == 0, done.stderr[-4_000:]
    kind, *views = done.stdout.splitlines()[-1].split()
    assert kind == "pyspark.sql.connect.session"
    assert views[:2] == ["usage", "throttled"]
    rows = spark.read.parquet(f"{given[2]}/usage").where("byte_rate is not null")
    assert rows.selectExpr("round(max(byte_rate)) as rate").collect()[0]["rate"] == 2 * RATE
    streamed = spark.read.parquet(f"{given[2]}/stream").where("byte_rate is not null")
    assert 50 <= streamed.count() <= rows.count()
