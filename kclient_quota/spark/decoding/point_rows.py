"""What a decoder found as rows of the table of points: who sent it, about which broker, when."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from kclient_quota.spark.decoding.schema import COLUMNS, KNOWN_AS, LETTER, SENDER, SERIES, TABLE, Wanted

COORDINATOR: Final = 2**31 - 1
"""What Java's clients take from the coordinator's id to name the connection to it."""

CLOCK_TOLERANCE_MS: Final = 120_000
"""How far a client's clock may be off the receiver's before the receiver's counts."""

USER_PREFIX: Final = "User:"
"""The kind of principal that quotas know."""

NODE: Final = ("node.id", "node_id")
"""Attributes that name a broker, librdkafka's and Java's."""

NODE_PREFIX: Final = "node-"
"""Of Java's names of brokers."""

_MEASURE: Final = pa.schema([("role", pa.string()), ("measure", pa.string())])
_TEXTS: Final = frozenset(name for name in KNOWN_AS if TABLE.field(name).type == pa.string())


@dataclass(frozen=True, slots=True)
class Shape:
    """Which points are wanted, and what of them.

    Attributes:
        columns: of the table, in its order.
        measures: metric -> (role, measure): only these metrics come, with two more columns that say so, and only
            points that have a value.
        spans: None: a row a point. Else a row for all gauges and deltas of a push that share role, broker and time
            (`push_rows`), with a column a measure; and for each of these measures `MEASURE_s`, the seconds it is of.
        clock_tolerance_ms: so far a client's clock may be from the receiver's; None: however far. A client that is
            further off is taken to have measured when its push came, for one clock must not end others' windows.
    """

    columns: tuple[str, ...] = COLUMNS
    measures: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    spans: tuple[str, ...] | None = None
    clock_tolerance_ms: int | None = CLOCK_TOLERANCE_MS

    @property
    def schema(self) -> pa.Schema:
        """The rows' columns."""
        found = [TABLE.field(name) for name in self.columns]
        if self.spans is None:
            return pa.schema([*found, *_MEASURE] if self.measures else found)
        values = [*self.values, *map(seconds_of, self.spans)]
        return pa.schema([*found, _MEASURE.field("role"), *(pa.field(name, pa.float64()) for name in values)])

    @property
    def values(self) -> tuple[str, ...]:
        """The measures, each once."""
        return tuple(dict.fromkeys(measure for _, measure in self.measures.values()))

    @property
    def decoded(self) -> pa.Schema:
        """The same, with room for dead letters."""
        return pa.schema([*self.schema, *LETTER])

    def wanted(self, known: Mapping[str, pa.Array]) -> Wanted:
        """What to ask of a decoder, when so much is known of the senders."""
        asked = {name for name in self.columns if name in SERIES.names}
        asked |= {"metric"} if self.measures else set()
        asked |= {"time_ms"} if "time" in self.columns else set()
        asked |= {"temporality", "start_ms"} if self.spans is not None else set()
        unsure = [name for name in self.columns if name in _TEXTS and (name not in known or known[name].null_count)]
        return Wanted(
            columns=frozenset(asked | ({"value"} if self.measures else set())),
            metrics=frozenset(self.measures) if self.measures else None,
            valued=bool(self.measures),
            resource=tuple(KNOWN_AS[name] for name in unsure),
            attributes=NODE if "broker" in self.columns else (),
        )


def seconds_of(measure: str) -> str:
    """The column of the seconds that a measure is of."""
    return f"{measure}_s"


ALL: Final = Shape()
"""Every point, every column."""


def senders(batch: pa.RecordBatch) -> dict[str, pa.Array]:
    """What stands beside pushes, by the table's names; columns that say nothing are left out."""
    found = {}
    for name in SENDER:
        known = KNOWN_AS.get(name)
        if known is not None and known in batch.schema.names:
            column = batch.column(known)
            if column.null_count < len(column):
                found[name] = _named(name, column.cast(TABLE.field(name).type))
    return found


def table_rows(found: pa.RecordBatch, known: Mapping[str, pa.Array], shape: Shape) -> pa.RecordBatch:
    """Rows of a shape.

    Args:
        found: what a decoder made of `shape.wanted(known)`.
        known: columns of the senders; `row` of `found` points into them.
        shape: what is wanted.
    """
    metrics = {}
    node = brokers(found, shape)
    if shape.measures:
        kept = pc.indices_nonzero(pc.and_(pc.is_valid(found.column("value")), is_placed(found, node, shape)))
        if len(kept) < found.num_rows:
            found, node = found.take(kept), node.take(kept)
        metrics = _measures(found.column("metric"), shape.measures)
    names = frozenset(found.schema.names)
    arrays = []
    for each in shape.decoded:
        if each.name in metrics:
            arrays.append(metrics[each.name])
        elif each.name in KNOWN_AS:
            arrays.append(sender(each, found, known))
        elif each.name == "broker":
            arrays.append(node)
        elif each.name == "time":
            arrays.append(times(found, known, shape.clock_tolerance_ms))
        else:
            arrays.append(found.column(each.name) if each.name in names else pa.nulls(found.num_rows, each.type))
    return pa.RecordBatch.from_arrays(arrays, schema=shape.decoded)


def sender(column: pa.Field, found: pa.RecordBatch, known: Mapping[str, pa.Array]) -> pa.Array:
    """A column of the sender: what stands beside the pushes, else what they say themselves."""
    given = _given(column.name, found, known)
    name = f"resource.{KNOWN_AS[column.name]}"
    if name not in found.schema.names or found.column(name).null_count == found.num_rows:
        return pa.nulls(found.num_rows, column.type) if given is None else given
    told = _named(column.name, found.column(name))
    return told if given is None else pc.coalesce(given, told)


def _given(name: str, found: pa.RecordBatch, known: Mapping[str, pa.Array]) -> pa.Array | None:
    return known[name].take(found.column("row")) if name in known else None


def _named(name: str, texts: pa.Array) -> pa.Array:
    """Users without the kind of the principal."""
    if name != "user":
        return texts
    return pc.if_else(pc.starts_with(texts, USER_PREFIX), pc.utf8_slice_codeunits(texts, len(USER_PREFIX)), texts)


def times(found: pa.RecordBatch, known: Mapping[str, pa.Array], tolerance_ms: int | None) -> pa.Array:
    """The column `time`; see `Shape.clock_tolerance_ms`."""
    time_ms = found.column("time_ms")
    received = _given("received_ms", found, known)
    if received is not None and tolerance_ms is not None:
        is_near = pc.less_equal(pc.abs(pc.subtract(time_ms, received)), tolerance_ms)
        time_ms = pc.if_else(pc.fill_null(is_near, pc.is_null(received)), time_ms, received)
    elif received is not None:
        time_ms = pc.coalesce(time_ms, received)
    return time_ms.cast(pa.timestamp("ms", "UTC")).cast(TABLE.field("time").type)


def brokers(found: pa.RecordBatch, shape: Shape) -> pa.Array:
    """The column `broker`; nothing in it where that is not wanted."""
    if "broker" not in shape.columns:
        return pa.nulls(found.num_rows, pa.string())
    first, second = (found.column(f"attributes.{name}") for name in NODE)
    if first.null_count == second.null_count == found.num_rows:
        return pa.nulls(found.num_rows, pa.string())
    coded = pc.coalesce(first, second).dictionary_encode()
    ids = pa.array([broker_id(raw) for raw in coded.dictionary.to_pylist()], pa.string())
    return ids.take(coded.indices)


def is_placed(found: pa.RecordBatch, node: pa.Array, shape: Shape) -> pa.Array:
    """Whether points are of a broker that is known, or of the client as a whole, and not of a bootstrap connection.

    What went over that one is in the client's own sums. As a row of no broker it would be counted with those, and halve
    every rate that is a mean over both.

    Args:
        found: the points.
        node: what `brokers` made of them.
        shape: what is wanted.
    """
    if "broker" not in shape.columns:
        return pa.repeat(True, found.num_rows)
    is_told = pc.or_(*(pc.is_valid(found.column(f"attributes.{name}")) for name in NODE))
    return pc.or_(pc.invert(is_told), pc.is_valid(node))


def broker_id(raw: str) -> str | None:
    """The broker that a client means.

    `1` of librdkafka's `node.id` 1, of Java's `node_id` node-1, of its coordinator connection's node-2147483646; None
    of a bootstrap connection, before the broker's id is known.
    """
    text = raw.removeprefix(NODE_PREFIX)
    try:
        number = int(text)
    except ValueError:
        return text
    if number < 0:
        return None
    return str(COORDINATOR - number) if number > COORDINATOR // 2 else text


def _measures(metrics: pa.Array, measures: Mapping[str, tuple[str, str]]) -> dict[str, pa.Array]:
    coded = metrics.dictionary_encode()
    pairs = [measures[name] for name in coded.dictionary.to_pylist()]
    return {
        column: pa.array([pair[place] for pair in pairs], pa.string()).take(coded.indices)
        for place, column in enumerate(_MEASURE.names)
    }
