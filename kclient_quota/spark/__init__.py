"""The data pipeline on Spark: client telemetry in, usage, throttling, outliers and the quotas to set out.

The only room that loads pyspark; `pip install kclient-quota[spark]`.
"""
