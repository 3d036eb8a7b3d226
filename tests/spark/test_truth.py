"""The pipeline's answers beside a fleet whose demand is known: `benchmarks.spark_truth`."""

import pytest

from benchmarks.spark_truth import check


@pytest.mark.timeout(420)
@pytest.mark.parametrize(("kind", "interval_s"), [("mixed", 20), ("mixed", 300), ("bursty", 300)])
def test_the_answers_are_those_of_the_script(spark, tmp_path, kind, interval_s):
    """Wrong clocks, groups, several to a quota, restarts, pushes that are lost or late; and Kafka's own interval."""
    found = check(spark, tmp_path, interval_s, kind)
    assert found.total < 0.01
    assert found.within > 0.9
    assert min(found.quotas) >= 1
    assert found.small.lowest <= found.small.script <= found.small.highest
    if kind != "bursty":  # where pushes say nearly nothing of when their bytes came, the error bars do
        assert found.worst_total < 0.02
        assert found.small.told == pytest.approx(found.small.script, rel=0.1)
