"""A driver of its own, to be killed or to lose executors: `recovery_driver.py SERVERS TOPIC OUTPUT CHECKPOINT ROWS`.

Also a job, `points` by default, and a master.
"""

import sys

from kclient_quota.spark.pipeline import Plan, run
from kclient_quota.spark.session import session

SETTINGS = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    "spark.driver.host": "127.0.0.1",
    "spark.executor.memory": "512m",
    "spark.sql.shuffle.partitions": "2",
}


def main(servers, topic, output, checkpoint, rows, job="points", master="local[2]"):
    client = {"bootstrap.servers": servers, "client.id": "pipeline"}
    spark = session("to be killed", master, SETTINGS)
    run(spark, Plan(job, topic, output, client=client, checkpoint=checkpoint, max_rows=int(rows)))


if __name__ == "__main__":
    main(*sys.argv[1:])
