"""What a decoder found as one row for all measures of a push that share role, broker and time.

Spark moves and sums a fifth of the rows, and fewer, that a row a point would be.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kclient_quota.spark.decoding.point_rows import Shape, brokers, is_placed, seconds_of, sender, times
from kclient_quota.spark.decoding.schema import KNOWN_AS

_DELTA: Final = "delta"

_Integers = np.ndarray[Any, np.dtype[np.int64]]


def push_rows(batches: Sequence[pa.RecordBatch], known: Mapping[str, pa.Array], shape: Shape) -> pa.RecordBatch:
    """Rows of a shape that has `spans`; points without a time, and cumulative sums, play no part.

    Args:
        batches: what a decoder made of `shape.wanted(known)`; all points of a push have to be in one call.
        known: columns of the senders; `row` of the points points into them.
        shape: what is wanted.
    """
    found, time, node = _counted(batches, known, shape)
    roles, measures = _measured(found.column("metric"), shape)
    keys = [found.column("row").to_numpy(), roles, _codes(node), _codes(time)]
    groups, heads = _groups(keys, measures, len(shape.values))
    first = found.take(pa.array(heads))
    columns = {"broker": node.take(pa.array(heads)), "time": time.take(pa.array(heads))}
    columns["role"] = pa.array(_names(shape)).take(pa.array(roles[heads]))
    columns |= _values(found, groups, measures, shape, len(heads))
    arrays = [
        columns[each.name]
        if each.name in columns
        else sender(each, first, known)
        if each.name in KNOWN_AS
        else pa.nulls(len(heads), each.type)
        for each in shape.decoded
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=shape.decoded)


def _counted(
    batches: Sequence[pa.RecordBatch], known: Mapping[str, pa.Array], shape: Shape
) -> tuple[pa.RecordBatch, pa.Array, pa.Array]:
    """The points that count, their times and brokers."""
    table = pa.Table.from_batches(batches, shape.wanted(known).schema).combine_chunks()
    found = pa.RecordBatch.from_arrays(
        [column.chunk(0) if column.num_chunks else pa.nulls(0, column.type) for column in table.columns],
        schema=table.schema,
    )
    time, node = times(found, known, shape.clock_tolerance_ms), brokers(found, shape)
    is_now = pc.fill_null(pc.equal(found.column("temporality"), _DELTA), True)
    is_told = pc.and_(pc.is_valid(found.column("value")), pc.is_valid(time))
    kept = pc.and_(pc.and_(is_now, is_told), is_placed(found, node, shape))
    if pc.all(kept, min_count=0).as_py():
        return found, time, node
    return found.filter(kept), time.filter(kept), node.filter(kept)


def _names(shape: Shape) -> list[str]:
    return list(dict.fromkeys(role for role, _ in shape.measures.values()))


def _measured(metrics: pa.Array, shape: Shape) -> tuple[_Integers, _Integers]:
    """Each point's role and measure, as numbers."""
    coded = metrics.dictionary_encode()
    pairs = [shape.measures[name] for name in coded.dictionary.to_pylist()]
    roles, values = _names(shape), shape.values
    codes = np.array([(roles.index(role), values.index(measure)) for role, measure in pairs], np.int64).reshape(-1, 2)
    found = codes[coded.indices.to_numpy()]
    return found[:, 0], found[:, 1]


def _codes(column: pa.Array) -> _Integers:
    """Small numbers, the same for the same values; null is one of them."""
    codes: _Integers = column.dictionary_encode("encode").indices.to_numpy().astype(np.int64)
    return codes


def _groups(keys: Sequence[_Integers], measures: _Integers, count: int) -> tuple[_Integers, _Integers]:
    """Which row each point belongs to, and the first point of every row; no row has a measure twice."""
    key = np.zeros(len(measures), np.int64)
    for codes in keys:
        key = key * (int(codes.max(initial=0)) + 1) + codes
    groups = _codes(pa.array(key))
    cells = groups * count + measures
    repeats = _repeats(cells)
    if repeats.any():
        groups = _codes(pa.array(groups * (int(repeats.max()) + 1) + repeats))
    heads = np.zeros(int(groups.max(initial=-1)) + 1, np.int64)
    heads[groups[::-1]] = np.arange(len(groups))[::-1]
    return groups, heads


def _repeats(cells: _Integers) -> _Integers:
    """How often the same has come before."""
    if len(pc.unique(pa.array(cells))) == len(cells):
        return np.zeros(len(cells), np.int64)
    order = np.argsort(cells, kind="stable")
    begins = np.flatnonzero(np.diff(cells[order], prepend=-1))
    found = np.empty(len(cells), np.int64)
    found[order] = np.arange(len(cells)) - np.repeat(begins, np.diff(begins, append=len(cells)))
    return found


def _values(
    found: pa.RecordBatch, groups: _Integers, measures: _Integers, shape: Shape, rows: int
) -> dict[str, pa.Array]:
    values = found.column("value").to_numpy()
    ends, starts = (found.column(name).cast(pa.float64()).to_numpy(zero_copy_only=False) for name in _SPAN)
    seconds = (ends - starts) / 1000  # NaN without either
    columns = {}
    for code, name in enumerate(shape.values):
        places = np.flatnonzero(measures == code)
        columns[name] = _spread(groups[places], values[places], rows)
        if name in (shape.spans or ()):
            known = places[seconds[places] > 0]
            columns[seconds_of(name)] = _spread(groups[known], seconds[known], rows)
    return columns


_SPAN: Final = ("time_ms", "start_ms")


def _spread(places: _Integers, values: Any, rows: int) -> pa.Array:
    if not len(places):
        return pa.nulls(rows, pa.float64())
    column, is_empty = np.zeros(rows), np.ones(rows, bool)
    column[places] = values
    is_empty[places] = False
    return pa.array(column, mask=is_empty)
