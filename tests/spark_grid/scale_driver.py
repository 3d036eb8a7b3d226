"""A driver of its own for a cluster: `python scale_driver.py MASTER INPUT OUTPUT`; says how its executors worked."""

import sys
import time

from benchmarks.spark_processes import shuffled
from kclient_quota.spark.pipeline import Plan, run
from kclient_quota.spark.session import session

SETTINGS = {
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.files.openCostInBytes": "268435456",  # a task a file
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.locality.wait": "0",
}
EXECUTORS = 2


def main(master, source, output):
    spark = session("scale-out", master, SETTINGS)
    deadline = time.monotonic() + 180
    while spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size() < EXECUTORS + 1:  # and the driver
        assert time.monotonic() < deadline, "the executors have not come"
        time.sleep(0.1)
    run(spark, Plan("usage", source, output))
    found = shuffled(spark)
    sys.stdout.write(f"executors {found.executors} shuffled {found.bytes}\n")
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
