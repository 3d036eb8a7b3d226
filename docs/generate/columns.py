"""docs/reference/columns.md: the columns of the table of data points and of what each Spark job writes."""

import ast

from docs.generate.page import ROOT, head

SPARK = ROOT / "kclient_quota" / "spark"
# Job and the module whose docstring has its columns.
TABLES = (
    ("points", "decoding/schema.py"),
    ("usage", "jobs/usage.py"),
    ("throttled", "jobs/throttled.py"),
    ("outliers", "jobs/outliers.py"),
    ("whatif", "jobs/backtest.py"),
    ("recommend", "jobs/recommend.py"),
    ("simulate", "jobs/simulate.py"),
)


def page() -> str:
    """A section for each job."""
    text = head(
        "Columns",
        "What `kclient-quota pipeline NAME` writes ([how](../how-to/spark.md)). `points` is the flat table that every other job reads.",
    )
    for job, module in TABLES:
        documented = ast.get_docstring(ast.parse((SPARK / module).read_text()))
        assert documented, module
        text += f"\n## {job}\n\n{documented}\n"
    return text
