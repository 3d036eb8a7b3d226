"""What a stream says at its end, out of the progress that Spark tells."""

from kclient_quota.spark.streaming.progress import Totals


def test_sizes_out_of_a_progress():
    operators = [
        {"numRowsTotal": 5, "memoryUsedBytes": 70, "numRowsDroppedByWatermark": 4},
        {"numRowsTotal": 2, "memoryUsedBytes": 30, "numRowsDroppedByWatermark": 0},
    ]
    metrics = {"kclient_quota": {"bytes": 10, "throttle_ms": None}, "dead_letters": {"letters": 2}}
    progress = [
        {"stateOperators": operators, "observedMetrics": metrics},
        {"stateOperators": [], "observedMetrics": {"kclient_quota": {"bytes": 5, "throttle_ms": 300}}},
        {"stateOperators": operators[:1], "observedMetrics": {}},
    ]
    totals = Totals()
    for each in progress:
        totals.add({"numInputRows": 3, **each})
    assert totals == Totals(9, 3, 7, 100, dropped=8, letters=2, bytes=15, throttle_ms=300)
    assert "8 rows came too late" in totals.told()
