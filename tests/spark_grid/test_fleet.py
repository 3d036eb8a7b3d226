"""A fleet as rows that are made inside Spark: `benchmarks.spark_fleet`."""

import pytest

from benchmarks.spark_fleet import measure, pushes

pytestmark = pytest.mark.timeout(600)


def test_a_fleet_is_counted_as_a_whole_and_none_of_it_comes_to_the_driver(spark, tmp_path):
    """Half of the clients share one quota; the rest has a user for every thousandth."""
    assert pushes(spark, 40, 1).count() == 480
    found = measure(spark, 40, 1, tmp_path)
    assert found.rows == pytest.approx(40 * 13, abs=40)
    assert found.part == pytest.approx(1.0, rel=1e-6)
    assert found.quotas >= 2
    assert found.files >= 1
