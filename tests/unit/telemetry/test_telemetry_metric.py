"""What was added to a growing value, and when it began anew."""

import pytest
from kclient_telemetry.metric import HistogramValue, attributes_of, subtract

H = HistogramValue((1.0, 2.0), (1, 2, 3), 9.5)


@pytest.mark.parametrize(
    ("value", "earlier", "change"),
    [
        (5, 3, 2),
        (5, 5, 0),
        (3, 5, None),
        (2.5, 1.0, 1.5),
        (H, HistogramValue((1.0, 2.0), (1, 0, 3), 6.5), HistogramValue((1.0, 2.0), (0, 2, 0), 3.0)),
        (H, HistogramValue((1.0, 2.0), (2, 0, 0), 1.0), None),
        (H, HistogramValue((1.0, 3.0), (0, 0, 0), 0.0), None),
        (H, 3, None),
        (3, H, None),
    ],
    ids=str,
)
def test_changes(value, earlier, change):
    assert subtract(value, earlier) == change


def test_a_histogram_counts_its_observations():
    assert H.count == 6


def test_attributes_do_not_depend_on_their_order():
    assert attributes_of({"b": 1, "a": "x"}) == attributes_of({"a": "x", "b": 1}) == (("a", "x"), ("b", 1))
