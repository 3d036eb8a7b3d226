"""The pipeline's answers where clients push at Kafka's own interval, and where they burst, too."""

import pytest

from tests.spark.test_truth import answers_are_those_of_the_script


@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", ["mixed", "bursty"])
def test_the_answers_are_those_of_the_script_every_five_minutes(spark, tmp_path, kind):
    answers_are_those_of_the_script(spark, tmp_path, kind, 300)
