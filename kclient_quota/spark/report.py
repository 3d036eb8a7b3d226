"""`kclient-quota pipeline report`: what jobs have written, as one HTML file that needs nothing else."""

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kclient_quota.errors import ConfigError
from kclient_quota.spark.reporting.tables import TOP, Tables, collect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LIBRARIES: Final = ("jinja2", "matplotlib")


def write_report(spark: "SparkSession", directory: Path, output: Path) -> str:
    """Write the report.

    Args:
        spark: the session.
        directory: has `usage`, `throttled`, `outliers` as jobs wrote them, and recommended.yaml and quotas.yaml for the
            comparison of quotas; whatever is not there is left out.
        output: the HTML file.

    Returns:
        a line that says what was written.

    Raises:
        ConfigError: nothing is there, or a library is missing.
    """
    for library in _LIBRARIES:
        try:
            importlib.import_module(library)
        except ImportError as error:
            raise ConfigError(f"the report needs {library}: pip install 'kclient-quota[spark,demo]'") from error
    found = collect(spark, directory)
    text = render(found)
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"output {output}: {error.strerror}") from error
    return f"{output}: {len(text.encode()) / 1024:,.0f} KiB; open it in a browser"


def render(found: Tables) -> str:
    """The HTML."""
    jinja2: Any = importlib.import_module("jinja2")
    plots: Any = importlib.import_module("kclient_quota.spark.reporting.plots")
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("kclient_quota.spark", "reporting"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
    )
    ranked = [row for row in found.outliers if row["share"] is not None]
    text: str = environment.get_template("report.html.j2").render(
        found=found,
        top=TOP,
        heat=plots.heat_map(found.heat) if found.heat else None,
        utilisation=plots.utilisation(found.utilisation) if found.utilisation else None,
        spread=plots.spread(found.spread) if found.spread else None,
        shares=plots.shares([row["client"] for row in ranked], [row["share"] for row in ranked]) if ranked else None,
        quotas=plots.quotas(found.quotas) if found.quotas else None,
    )
    return text
