"""Prometheus' text format and OpenMetrics, as its own library writes them, whichever a scraper asks for."""

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import accumulate

from kclient_telemetry.errors import MissingExtraError

_UNKNOWN = re.compile(r"[^a-zA-Z0-9_]")
_RESERVED = frozenset({"le", "quantile"})

Sample = tuple[str, dict[str, str], float]
"""What is put behind the family's name (such as `_total`), labels, value."""


@lru_cache(maxsize=4096)
def prometheus_name(name: str) -> str:
    """`name` with what Prometheus does not allow replaced by `_`."""
    clean = _UNKNOWN.sub("_", name)
    return f"_{clean}" if not clean or clean[0].isdigit() else clean


@lru_cache(maxsize=4096)
def label_name(key: str) -> str:
    """A client's attribute as a label; those that mean something to Prometheus get `exported_` before them."""
    name = prometheus_name(key)
    return f"exported_{name}" if name in _RESERVED or name.startswith("__") else name


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


def histogram_samples(
    labels: dict[str, str], bounds: Sequence[float], buckets: Sequence[int], total: float
) -> list[Sample]:
    """The samples of one histogram.

    Args:
        labels: of all of them.
        bounds: finite, ascending.
        buckets: how many observations are in each, one more than bounds.
        total: the sum of all observations; NaN when there is none. OpenMetrics has none for observations that may be
            negative, and no count without it.
    """
    counts = list(accumulate(buckets))
    found: list[Sample] = [
        ("_bucket", {**labels, "le": str(bound)}, count)
        for bound, count in zip((*bounds, math.inf), counts, strict=True)
    ]
    if not math.isnan(total) and not any(bound < 0 for bound in bounds):
        found += [("_sum", labels, total), ("_count", labels, counts[-1])]
    return found


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
        from prometheus_client.utils import floatToGoString  # noqa: PLC0415 - as above
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            "a page for Prometheus needs prometheus_client: pip install 'kclient-quota[prometheus]'"
        ) from error

    class Collected:
        def collect(self) -> Iterable[Metric]:
            for family in families:
                metric = Metric(family.name, family.help, family.kind)
                for suffix, labels, value in family.samples:
                    if suffix == "_bucket":  # OpenMetrics says how bounds are written: 1e+06, not 1000000.0
                        bound = floatToGoString(labels["le"])  # type: ignore[no-untyped-call]
                        labels = {**labels, "le": bound}  # noqa: PLW2901
                    metric.add_sample(family.name + suffix, labels, value)
                yield metric

    encode, content_type = choose_encoder(accept)
    return encode(Collected()), content_type
