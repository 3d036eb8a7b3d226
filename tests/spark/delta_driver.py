"""Usage into Delta tables, as a batch and as a stream, with Delta's libraries; prints how many rows each has.

python -m tests.spark.delta_driver PACKAGE PUSHES FOLDER
"""

import sys

from kclient_quota.spark.pipeline import Plan, run
from kclient_quota.spark.session import session

package, pushes, folder = sys.argv[1:]
settings = {
    "spark.jars.packages": package,
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}
spark = session("delta", "local[2]", settings)
for name, checkpoint in (("batch", None), ("stream", f"{folder}/checkpoint")):
    output = f"{folder}/{name}"
    run(spark, Plan("usage", pushes, output, source_format="pushes", output_format="delta", checkpoint=checkpoint))
    sys.stdout.write(f"{name} {spark.read.format('delta').load(output).count()}\n")
spark.stop()
