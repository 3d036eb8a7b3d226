"""What brokers told a sink's tasks, in the place of a query's progress where it belongs.

Spark 4.3 drops what Python sinks tell of a batch, so that `progress["sink"]` has no `metrics`. The sink writes them to
its `metricsFile`, before Spark reports the batch; here they are put into the progress, asked for or as it comes:

    with_sink_metrics(query.recentProgress, "batches.jsonl")[-1]["sink"]["metrics"]["throttle_total_ms"]
    spark.streams.addListener(SinkListener("batches.jsonl", print))

Metrics of a batch: rows, bytes, throttles, throttle_total_ms, throttle_max_ms, throttle_avg_ms, seconds; see
`sink.Written`.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from kclient_quota.errors import ConfigError


def sink_metrics(file: Path | str) -> dict[int, dict[str, Any]]:
    """Batch to its metrics; of a batch that was written again, the last time. Empty before the first batch.

    Raises:
        ConfigError: the file is none of the sink's.
    """
    path = Path(file)
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    try:
        found = {each.pop("batch"): each for each in map(json.loads, lines)}
    except (ValueError, TypeError, AttributeError, KeyError) as error:
        raise ConfigError(f"{path} is no metricsFile of the sink ({type(error).__name__}: {error})") from error
    found.pop(None, None)  # of batch queries
    return found


def with_sink_metrics(progress: Iterable[Mapping[str, Any]], file: Path | str) -> list[dict[str, Any]]:
    """A query's progress with `sink.metrics` in every batch that wrote anything.

    Args:
        progress: such as `query.recentProgress`, or `[query.lastProgress]`.
        file: the query's `metricsFile`; each query has one of its own.
    """
    known = sink_metrics(file)
    plain = [dict(each) for each in progress]
    for each in plain:
        if each["batchId"] in known:
            each["sink"] = {**each.get("sink", {}), "metrics": known[each["batchId"]]}
    return plain


class SinkListener(StreamingQueryListener):
    """Hands over every progress of a query, `sink.metrics` included.

    Args:
        file: the query's `metricsFile`.
        callback: is called with the progress; runs in a thread of PySpark's.
        query_name: `queryName` of that query; None: it is the only one of the session.
    """

    def __init__(
        self, file: Path | str, callback: Callable[[dict[str, Any]], Any], query_name: str | None = None
    ) -> None:
        self._file = file
        self._callback = callback
        self._query_name = query_name

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 - Spark's name
        """A batch is done."""
        if self._query_name in (None, event.progress.name):
            self._callback(with_sink_metrics([json.loads(event.progress.json)], self._file)[0])

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        """Nothing to tell."""

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802 - Spark's name
        """Nothing to tell."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 - Spark's name
        """Nothing to tell."""
