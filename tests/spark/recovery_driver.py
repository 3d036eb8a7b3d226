"""A driver of its own that is to be killed: `python recovery_driver.py SERVERS TOPIC OUTPUT CHECKPOINT ROWS`."""

import sys

from kclient_quota.spark.pipeline import Plan, run
from kclient_quota.spark.session import session


def main(servers, topic, output, checkpoint, rows):
    client = {"bootstrap.servers": servers, "client.id": "pipeline"}
    spark = session("to be killed", "local[2]", {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1"})
    run(spark, Plan("points", topic, output, client=client, checkpoint=checkpoint, max_rows=int(rows)))


if __name__ == "__main__":
    main(*sys.argv[1:])
