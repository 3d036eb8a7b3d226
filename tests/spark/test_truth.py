"""The pipeline's answers beside a fleet whose demand is known: `benchmarks.spark_truth`."""

import pytest

from benchmarks.spark_truth import check


@pytest.mark.timeout(420)
@pytest.mark.parametrize("interval_s", [20, 300])
def test_the_answers_are_those_of_the_script(spark, tmp_path, interval_s):
    """Wrong clocks, groups, several to a quota, restarts, pushes that are lost or late; and Kafka's own interval."""
    found = check(spark, tmp_path, interval_s)
    assert found.worst_total < 0.02
    assert found.least_quota >= 1
    assert found.small.told == pytest.approx(found.small.script, rel=0.1)
    assert found.small.lowest <= found.small.told <= found.small.highest
