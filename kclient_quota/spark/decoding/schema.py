"""The flat table of data points that every job reads, whatever the points came from.

| column | type | meaning |
| --- | --- | --- |
| client_instance_id, client_id, user, group_id | string | who pushed; null when nobody knew |
| broker | string | id of the broker that the metric is about (`node.id`, `node_id`); null: about the whole client |
| receiving_broker, cluster_id | string | where the push arrived |
| software_name, software_version, source_address | string | what the client runs, and where |
| terminating | boolean | the client's last push |
| push_interval_ms | bigint | how often that client pushes |
| received_ms | bigint | when the receiver got the push, ms since 1970 |
| metric, unit | string | as pushed |
| kind | string | gauge, sum or histogram |
| temporality | string | delta or cumulative; null for gauges |
| monotonic | boolean | of sums; else null |
| start_ms, time_ms | bigint | as pushed, ms since 1970; null when not given |
| value | double | of gauges and sums; null when NaN or infinite |
| count, sum, bounds, bucket_counts | bigint, double, array, array | of histograms |
| attributes, resource | map of string to string | of the data point, of the client |
| time | timestamp | the event time of windows and watermarks: `time_ms`, or `received_ms` where the client gave none, \
or one that is further from it than a clock may be off |
"""

from dataclasses import dataclass
from typing import Final

import pyarrow as pa

_TEXTS: Final = pa.map_(pa.string(), pa.string())

SERIES: Final = pa.schema(
    [
        ("row", pa.int64()),
        ("metric", pa.string()),
        ("unit", pa.string()),
        ("kind", pa.string()),
        ("temporality", pa.string()),
        ("monotonic", pa.bool_()),
        ("start_ms", pa.int64()),
        ("time_ms", pa.int64()),
        ("value", pa.float64()),
        ("count", pa.int64()),
        ("sum", pa.float64()),
        ("bounds", pa.list_(pa.float64())),
        ("bucket_counts", pa.list_(pa.int64())),
        ("attributes", _TEXTS),
        ("resource", _TEXTS),
    ]
)
"""What a decoder makes of payloads: a data point a row, `row` saying which payload it came from."""

CARRIED: Final = pa.schema(
    [
        ("client_instance_id", pa.string()),
        ("client_id", pa.string()),
        ("principal", pa.string()),
        ("client_software_name", pa.string()),
        ("client_software_version", pa.string()),
        ("client_source_address", pa.string()),
        ("broker_id", pa.string()),
        ("cluster_id", pa.string()),
        ("terminating", pa.bool_()),
        ("push_interval_ms", pa.int64()),
        ("received_unix_ms", pa.int64()),
    ]
)
"""What may stand beside a payload, by the receiver's names; what does not is taken from the resource's attributes."""

TABLE: Final = pa.schema(
    [
        ("client_instance_id", pa.string()),
        ("client_id", pa.string()),
        ("user", pa.string()),
        ("group_id", pa.string()),
        ("broker", pa.string()),
        ("receiving_broker", pa.string()),
        ("cluster_id", pa.string()),
        ("software_name", pa.string()),
        ("software_version", pa.string()),
        ("source_address", pa.string()),
        ("terminating", pa.bool_()),
        ("push_interval_ms", pa.int64()),
        ("received_ms", pa.int64()),
        *((field.name, field.type) for field in SERIES if field.name != "row"),
        ("time", pa.timestamp("us", "UTC")),
    ]
)
"""The table of points."""

COLUMNS: Final = tuple(TABLE.names)
"""Its columns, in order."""

SENDER: Final = COLUMNS[: COLUMNS.index("metric")]
"""Those that are about who pushed; a dead letter has them, too (but for `group_id` and `broker`, from columns only)."""

RECEIVED_MS: Final = (-1, 253_370_764_800_000)
"""What `received_ms` may be: from Kafka's "no time" up to the year 9999, where calendars end."""

UNTIMELY: Final = "no push is received before 1970 or after the year 9998, received_unix_ms is"
"""What a dead letter says, followed by the number."""

LETTER: Final = pa.schema([("error", pa.string()), ("payload", pa.binary())])
"""What a row has besides until points and dead letters are parted; `error` is null in points."""

KNOWN_AS: Final = {
    "client_instance_id": "client_instance_id",
    "client_id": "client_id",
    "user": "principal",
    "group_id": "group_id",
    "receiving_broker": "broker_id",
    "cluster_id": "cluster_id",
    "software_name": "client_software_name",
    "software_version": "client_software_version",
    "source_address": "client_source_address",
    "terminating": "terminating",
    "push_interval_ms": "push_interval_ms",
    "received_ms": "received_unix_ms",
}
"""Columns of the table by the receiver's names: of columns beside a payload, of attributes of its resource."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a decoder is asked for: whatever is left out costs nothing.

    Attributes:
        columns: of `SERIES`; `row` always comes.
        metrics: only these; None: all.
        valued: only points that have a value: none of histograms.
        resource: attributes of the client that become columns of texts, null where it has none.
        attributes: attributes of the data point, the same.
    """

    columns: frozenset[str] = frozenset(SERIES.names)
    metrics: frozenset[str] | None = None
    valued: bool = False
    resource: tuple[str, ...] = ()
    attributes: tuple[str, ...] = ()

    @property
    def schema(self) -> pa.Schema:
        """What comes: of `SERIES` in its order, then `resource.NAME` and `attributes.NAME`."""
        found = [field for field in SERIES if field.name == "row" or field.name in self.columns]
        found += [pa.field(f"resource.{name}", pa.string()) for name in self.resource]
        found += [pa.field(f"attributes.{name}", pa.string()) for name in self.attributes]
        return pa.schema(found)


EVERYTHING: Final = Wanted()

_DDL: Final = {
    pa.string(): "string",
    pa.bool_(): "boolean",
    pa.int64(): "bigint",
    pa.float64(): "double",
    pa.binary(): "binary",
    pa.timestamp("us", "UTC"): "timestamp_ltz",  # plain `timestamp` is what a session says that it is
    _TEXTS: "map<string,string>",
    pa.list_(pa.float64()): "array<double>",
    pa.list_(pa.int64()): "array<bigint>",
}


def ddl(schema: pa.Schema) -> str:
    """A schema in Spark's words."""
    return ", ".join(f"`{field.name}` {_DDL[field.type]}" for field in schema)
