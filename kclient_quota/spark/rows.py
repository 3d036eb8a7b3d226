"""The rows of each job, by a plan whose lengths are settled."""

from typing import TYPE_CHECKING

from kclient_quota.spark.durations import duration_ms
from kclient_quota.spark.jobs.backtest import backtest
from kclient_quota.spark.jobs.gains import gains
from kclient_quota.spark.jobs.throttled import throttled
from kclient_quota.spark.jobs.usage import usage
from kclient_quota.spark.measures import as_delta
from kclient_quota.spark.plan import Plan
from kclient_quota.spark.quota_table import Limits

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def usage_of(plan: Plan, table: "DataFrame", limits: Limits | None) -> "DataFrame":
    """Usage of points (of a stream, pushes) by the plan's lengths, which are settled."""
    assert plan.window is not None, "settled"
    assert plan.push_interval is not None, "settled"
    deltas = table if table.isStreaming else as_delta(table)
    return usage(deltas, plan.window, plan.late, limits, plan.push_interval)


def table_job(plan: Plan, table: "DataFrame", limits: Limits | None) -> "DataFrame":
    """The rows of a job that writes rows; of outliers, the usage that they are found in."""
    if plan.job == "points":
        return table
    if plan.job == "throttled":
        return throttled(table if table.isStreaming else as_delta(table), plan.gap, plan.late, limits)
    if plan.job == "whatif":
        return backtest(usage_of(plan, table, None), limits or {}, plan.policy.most_growth)
    if plan.job == "gains":
        return gains(table, usage_of(plan, table, None), duration_ms("linger", plan.linger))
    return usage_of(plan, table, limits)
