"""OTLP's lists of key-values, many at a time: as maps of texts, or one key as a column."""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from kclient_telemetry.errors import InvalidPayloadError

OPAQUE = ("array_value", "kvlist_value", "bytes_value")
"""Values that a column of texts does not hold."""

_BITS = 40

_Integers = np.ndarray[Any, np.dtype[np.int64]]


class AttributeLists:
    """One list of key-values a row, in Arrow.

    Args:
        lists: of structs with `key` and `value`, as ptars reads them; null is empty.

    Raises:
        InvalidPayloadError: a list has a key twice, or a value of `OPAQUE`. Where those were not read, `of` raises it
            for the key that has one.
    """

    def __init__(self, lists: pa.Array) -> None:
        lengths = pc.list_value_length(lists).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
        self._offsets: _Integers = np.concatenate(([0], np.cumsum(lengths)))
        flat = lists.flatten()
        self._keys = pc.struct_field(flat, ["key"])
        self._values = _text(pc.struct_field(flat, ["value"]))
        coded = self._keys.dictionary_encode()
        self._known = {name: code for code, name in enumerate(coded.dictionary.to_pylist())}
        self._codes: _Integers = coded.indices.to_numpy().astype(np.int64)
        if _has_twins(self._codes, lengths, len(self._known)):
            raise InvalidPayloadError("an attribute stands twice in a list")

    def maps(self) -> pa.Array:
        """The lists as maps."""
        return pa.MapArray.from_arrays(pa.array(self._offsets, pa.int32()), self._keys, self._values)

    def of(self, name: str) -> pa.Array:
        """The text that each list has under a key; null where it has none."""
        rows = len(self._offsets) - 1
        code = self._known.get(name)
        if code is None:
            return pa.nulls(rows, pa.string())
        places = np.flatnonzero(self._codes == code)
        if self._values.null_count and self._values.take(pa.array(places)).null_count:
            raise InvalidPayloadError(f"attribute {name} has a value that is no text")
        if len(places) == rows:
            return self._values.take(pa.array(places))
        found = np.full(rows, -1, np.int64)
        found[np.searchsorted(self._offsets, places, side="right") - 1] = places
        return self._values.take(pa.array(found, mask=found < 0))


def _has_twins(codes: _Integers, lengths: _Integers, known: int) -> bool:
    if not len(codes) or lengths.max() <= 1:
        return False
    if known <= _BITS:  # a sum of powers of two is their union only if they differ
        begins = np.concatenate(([0], np.cumsum(lengths[lengths > 0])[:-1]))
        powers = np.left_shift(np.int64(1), codes)
        sums, unions = np.add.reduceat(powers, begins), np.bitwise_or.reduceat(powers, begins)
        return bool((sums != unions).any())
    pairs = np.repeat(np.arange(len(lengths)), lengths) * known + codes
    return len(np.unique(pairs)) < len(pairs)


def _text(values: pa.Array) -> pa.Array:
    """Values as texts; null where one has none of the kinds that were read, unless all were."""
    is_whole = values.type.get_field_index(OPAQUE[0]) >= 0
    for name in OPAQUE if is_whole else ():
        opaque = pc.struct_field(values, [name])
        if opaque.null_count < len(opaque):
            raise InvalidPayloadError(f"an attribute has a {name}, which a column of texts does not hold")
    texts = pc.struct_field(values, ["string_value"])
    if texts.null_count == 0:
        return texts
    doubles = pc.struct_field(values, ["double_value"])
    if doubles.null_count < len(doubles):  # Python's way of writing them, which Arrow's is not
        doubles = pa.array([None if each is None else str(each) for each in doubles.to_pylist()], pa.string())
    else:
        doubles = pa.nulls(len(doubles), pa.string())
    return pc.coalesce(
        texts,
        pc.struct_field(values, ["bool_value"]).cast(pa.string()),
        pc.struct_field(values, ["int_value"]).cast(pa.string()),
        doubles,
        pa.scalar("" if is_whole else None, pa.string()),
    )
