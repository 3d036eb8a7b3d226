"""Clients that share a quota, added up when their window is closed: the second half of `usage` as a stream.

All rows of a window come out of Spark's state in one batch, that in which the watermark passes the window's end. So
nothing has to be kept from batch to batch to add them up, as an aggregation of Spark's would.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

WINDOW: Final = ("window_start", "window_end")
WHO: Final = ("cluster_id", "user", "client_id", "group_id", "role", "broker")

SUMS: Final = (
    *("byte_rate", "byte_rate_max", "byte_rate_variance", "byte_rate_error", "request_rate"),
    *("throttle_total_ms", "throttles", "wait_total_ms", "covered_ms"),
)
MEANS: Final = ("throttle_avg_ms",)
HIGHEST: Final = ("throttle_max_ms",)
"""How the columns of clients that share a quota become one row's."""

SENDER: Final = ("sender", "clients", "byte_rate", "byte_rate_max", "byte_rate_variance")
"""What is told of each of several instances in a row."""

SENDERS: Final = (
    "array<struct<sender: int, clients: bigint, byte_rate: double, byte_rate_max: double, byte_rate_variance: double>>"
)

QUOTA: Final = ("quota_key", "quota", "quota_level", "quota_user", "quota_client_id")
SHARED: Final = ("cluster_id", "broker", "role", "quota_level", "quota_user", "quota_client_id")
"""Who has these in common shares a quota."""

_KEYS: Final = (*WINDOW, *WHO, *QUOTA)
_SEAT: Final = (*_KEYS, "sender")
_ADDED: Final = {
    **dict.fromkeys(("clients", *SUMS, *MEANS, *(f"{name}_known" for name in MEANS)), "sum"),
    **dict.fromkeys(HIGHEST, "max"),
}
_DOUBLES: Final = (
    *("byte_rate", "byte_rate_max", "byte_rate_variance", "byte_rate_error", "request_rate", *MEANS, *HIGHEST),
    *("throttle_total_ms", "throttles", "wait_total_ms", "covered_ms"),
)
_DDL: Final = ", ".join(
    [
        *(f"{name} timestamp_ltz" for name in WINDOW),
        *(f"{name} string" for name in WHO),
        "clients bigint",
        *(f"{name} double" for name in _DOUBLES),
        *(f"{name} {'double' if name == 'quota' else 'string'}" for name in QUOTA),
        "quota_byte_rate double",
        "utilisation double",
        f"senders {SENDERS}",
    ]
)
_MANY: Final = 50_000


def of_closed(per_client: "DataFrame") -> "DataFrame":
    """The rows of `usage`; one task holds all of the windows that one batch closes for those who share a quota.

    Args:
        per_client: a stream of rows a window, client and `WHO` with their quotas, all of a window in one batch.
    """
    return per_client.repartition(*WINDOW, *SHARED).mapInArrow(_add_up, _DDL)


def _add_up(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    done = rest = None
    for batch in batches:
        rest = _joined(rest, _counted(batch))
        if rest.num_rows > _MANY:
            done, rest = _added(_joined(done, rest)), None
    if done is not None or rest is not None:
        yield from _rows(_added(_joined(done, rest))).to_batches()


def _joined(first: pa.Table | None, second: pa.Table | None) -> pa.Table:
    return pa.concat_tables([each for each in (first, second) if each is not None])


def _counted(batch: pa.RecordBatch) -> pa.Table:
    """One row a client in columns that can be added up again and again."""
    table = pa.Table.from_batches([batch])
    for name in MEANS:
        table = table.append_column(f"{name}_known", pc.is_valid(table.column(name)).cast(pa.int64()))
    return table.select([*_SEAT, *_ADDED])


def _added(table: pa.Table) -> pa.Table:
    wanted: list[Any] = [*_ADDED.items()]
    return _summed(table.group_by([*_SEAT], use_threads=False).aggregate(wanted), _SEAT)


def _summed(found: pa.Table, keys: Sequence[str]) -> pa.Table:
    columns = {name: found.column(name) for name in keys}
    return pa.table(columns | {name: found.column(f"{name}_{way}") for name, way in _ADDED.items()})


def _rows(seated: pa.Table) -> pa.Table:
    wanted: list[Any] = [*_ADDED.items(), *((name, "list") for name in SENDER)]
    ordered = seated.take(pc.sort_indices(seated.column("sender")))
    found = ordered.group_by([*_KEYS], use_threads=False).aggregate(wanted)
    table = _summed(found, _KEYS)
    columns = {name: table.column(name) for name in (*WINDOW, *WHO, "clients")}
    means = {name: pc.divide(table.column(name), table.column(f"{name}_known")) for name in MEANS}
    columns |= {name: means.get(name, table.column(name)) for name in _DOUBLES}
    columns |= {name: table.column(name) for name in QUOTA}
    columns["quota_byte_rate"] = _together(table)
    columns["utilisation"] = pc.divide(columns["quota_byte_rate"], table.column("quota"))
    columns["senders"] = _senders(found)
    return pa.table(columns)


def _senders(found: pa.Table) -> pa.ListArray:
    """What each of several instances does, for each row; null: there is one."""
    lists = [found.column(f"{name}_list").combine_chunks() for name in SENDER]
    structs = pa.StructArray.from_arrays([pc.list_flatten(each) for each in lists], names=list(SENDER))
    is_one = pc.less_equal(found.column("clients_sum"), 1).combine_chunks()
    return pa.ListArray.from_arrays(lists[0].offsets, structs, mask=is_one)


def _together(table: pa.Table) -> pa.ChunkedArray:
    """What all do together who share a quota, for each row; null where the row's clients do not tell."""
    keys = [*WINDOW, *SHARED]
    numbered = table.select(keys).append_column("rate", table.column("byte_rate"))
    numbered = numbered.append_column("row", pa.array(range(table.num_rows), pa.int64()))
    sums = numbered.group_by(keys, use_threads=False).aggregate([("rate", "sum"), ("row", "list")])
    order = pc.sort_indices(pc.list_flatten(sums.column("row_list")))
    found = sums.column("rate_sum").take(pc.list_parent_indices(sums.column("row_list"))).take(order)
    return pc.if_else(pc.is_valid(table.column("byte_rate")), found, pa.scalar(None, pa.float64()))
