"""Spark elsewhere than in one process, at other sizes and cadences: part of `make grids`."""

import importlib.util
from pathlib import Path

from tests.spark_session import IS_INSTALLED, spark

__all__ = ["spark"]

if not IS_INSTALLED:  # tests/spark says so
    collect_ignore = [path.name for path in Path(__file__).parent.glob("test_*.py")]
elif importlib.util.find_spec("pyspark.sql.streaming.datasource") is None:  # PySpark 4.1
    collect_ignore = ["test_raw_hour.py"]
