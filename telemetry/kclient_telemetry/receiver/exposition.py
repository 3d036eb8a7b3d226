"""Prometheus' text format and OpenMetrics, as its own library writes them, whichever a scraper asks for."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from kclient_telemetry.errors import MissingExtraError

Sample = tuple[str, dict[str, str], float]
"""What is put behind the family's name (such as `_total`), labels, value."""


@dataclass(slots=True)
class Family:
    """One metric with its samples.

    Attributes:
        name: without the suffixes of its samples.
        kind: counter, gauge or histogram.
        samples: those of one histogram stand together, buckets first.
        help: for people.
    """

    name: str
    kind: str
    samples: list[Sample] = field(default_factory=list)
    help: str = ""


def page(families: Iterable[Family], accept: str = "") -> tuple[bytes, str]:
    """A page of metrics.

    Args:
        families: what is on it.
        accept: the scraper's Accept header.

    Returns:
        the body and its content type.

    Raises:
        MissingExtraError: prometheus_client is not installed.
    """
    try:
        from prometheus_client import Metric  # noqa: PLC0415 - an extra
        from prometheus_client.exposition import choose_encoder  # noqa: PLC0415 - as above
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            "a page for Prometheus needs prometheus_client: pip install 'kclient-quota[prometheus]'"
        ) from error

    class Collected:
        def collect(self) -> Iterable[Metric]:
            for family in families:
                metric = Metric(family.name, family.help, family.kind)
                for suffix, labels, value in family.samples:
                    metric.add_sample(family.name + suffix, labels, value)
                yield metric

    encode, content_type = choose_encoder(accept)
    return encode(Collected()), content_type
