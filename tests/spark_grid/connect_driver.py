"""Jobs through Spark Connect, on a server of their own: `python connect_driver.py PUSHES QUOTAS FOLDER`."""

import sys
from pathlib import Path

from kclient_quota.spark.pipeline import Plan, run
from kclient_quota.spark.report import write_report
from kclient_quota.spark.session import session
from kclient_quota.spark.views import create_views


def main(pushes, quotas, folder):
    spark = session("connect", None, {"spark.sql.shuffle.partitions": "1"})
    kind = type(spark).__module__
    given = {"source_format": "pushes"}

    def done(job, name, **more):
        sys.stdout.write(run(spark, Plan(job, pushes, f"{folder}/{name}", **{**given, **more})) + "\n")

    done("usage", "usage", quotas=quotas)
    done("throttled", "throttled", quotas=quotas)
    done("outliers", "outliers")
    done("recommend", "recommended.yaml", hold_out=0.3)
    done("whatif", "whatif", quotas=quotas)
    done("gains", "gains")
    done("usage", "stream", checkpoint=f"{folder}/checkpoint", dead_letters=f"{folder}/letters")
    done("outliers", "stream-of-outliers", checkpoint=f"{folder}/checkpoint-of-outliers")
    sys.stdout.write(write_report(spark, Path(folder), Path(folder) / "report.html") + "\n")
    sys.stdout.write(f"{kind} {' '.join(create_views(spark, folder))}\n")
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:4])
