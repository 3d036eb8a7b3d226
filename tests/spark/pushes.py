"""Raw pushes of made-up clients, as a receiver writes them to Parquet."""

import pyarrow as pa
import pyarrow.parquet as pq
from kclient_telemetry.metric import MetricKind, Point, PointKey, PushPoint
from kclient_telemetry.otlp import encode

BEGIN_MS = 1_800_000_000_000
FIVE_S = 300
RATE = 100_000.0
BYTES = "producer.node.outgoing.byte.total"
THROTTLE = "producer.produce.throttle.time.max"


def push(client, at_s, span_s, told_of, *, user="u", client_id="app", skew_s=0, group=None):
    """A row of a file of raw pushes; `told_of`: metric to value, those that end in `total` are deltas."""
    at_ms = BEGIN_MS + (at_s + skew_s) * 1000
    points = []
    for name, value in told_of.items():
        is_sum = name.endswith("total")
        node = (("node_id", "node-1"),) if ".node." in name else ()
        point = Point(PointKey(f"org.apache.kafka.{name}", node), MetricKind.SUM if is_sum else MetricKind.GAUGE, value)
        points.append(PushPoint(point, value, at_ms - span_s * 1000 if is_sum else None, at_ms, delta=is_sum))
    return {
        "value": encode(points, (("group_id", group),) if group else (), 0).payload,
        "client_instance_id": f"i{client}",
        "client_id": client_id,
        "principal": f"User:{user}",
        "cluster_id": "k",
        "push_interval_ms": span_s * 1000,
        "received_unix_ms": BEGIN_MS + at_s * 1000,
    }


def write(folder, rows, name="0.parquet"):
    folder.mkdir(exist_ok=True)
    kinds = {"value": pa.binary(), "push_interval_ms": pa.int64(), "received_unix_ms": pa.int64()}
    names = [*rows[0]]
    pq.write_table(
        pa.Table.from_pylist(rows, pa.schema([(each, kinds.get(each, pa.string())) for each in names])), folder / name
    )
    return str(folder)


def steady(clients, hours=1, span_s=FIVE_S, **who):
    """Clients at RATE, whose pushes fall anywhere into their interval."""
    return [
        push(client, at_s, span_s, {BYTES: RATE * span_s}, **who)
        for client in range(clients)
        for at_s in range(span_s + client * 29, hours * 3600 + 1, span_s)
    ]
