"""The pipeline's answers beside a fleet whose demand is known: `benchmarks.spark_truth`.

Where clients push at Kafka's own interval and every 20 seconds, and where they burst, too: with wrong clocks, groups,
several to a quota, restarts, pushes that are lost or late.
"""

import pytest

from benchmarks.spark_truth import check
from benchmarks.spark_truth_twins import nearest


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("kind", "interval_s"), [("mixed", 20), ("mixed", 300), ("bursty", 300)])
def test_the_answers_are_those_of_the_script(spark, tmp_path, kind, interval_s):
    found = check(spark, tmp_path, interval_s, kind)
    assert found.total < 0.01
    assert found.within > 0.9
    assert min(found.quotas) >= 1
    assert found.of_twins >= 1
    for each in (found.small, found.asked):  # whatever it is that clients with these pushes did
        assert each.lowest <= min(each.twins)
        assert max(each.twins) <= each.highest
    # those whose clients burst, on two brokers: both users of the one fleet, one of the other
    assert found.small.untold == (0 if interval_s == 20 else {"bursty": 4, "mixed": 2}[kind])
    if kind == "bursty":  # pushes say nearly nothing of when their bytes came: no estimate can be near; this is told
        assert nearest(found.small.twins) > 0.5
    else:
        assert found.worst_total < 0.02
        assert found.small.told == pytest.approx(found.small.script, rel=0.1)
