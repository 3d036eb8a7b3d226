"""One Spark session for all tests of a worker that need it."""

import importlib.util
import sys

import pytest

IS_INSTALLED = all(map(importlib.util.find_spec, ("pyspark", "pyarrow", "ptars")))


@pytest.fixture(scope="session")
def spark(tmp_path_factory):
    from kclient_quota.spark.session import session

    folder = tmp_path_factory.mktemp("spark")
    running = session(
        "tests",
        "local[2]",
        {
            "spark.sql.shuffle.partitions": "1",
            "spark.sql.codegen.factoryMode": "NO_CODEGEN",
            "spark.sql.codegen.wholeStage": "false",
            "spark.driver.memory": "1g",
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
            "spark.python.worker.faulthandler.enabled": "true",
            "spark.executorEnv.PYTHONPATH": ":".join(filter(None, sys.path)),
        },
    )
    running.sparkContext.setLogLevel("ERROR")
    yield running
    running.stop()
