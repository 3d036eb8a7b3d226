"""Sessions of throttled consumers: what is left of the time in which their group waits for them."""

from datetime import UTC, datetime

from kclient_quota.spark.decoding.schema import ddl
from kclient_quota.spark.jobs.throttled import throttled
from kclient_quota.spark.measures import MEASURED

BEGIN_MS = 1_800_000_000_000
LONGEST = {"in-time": 4_000.0, "lost": 12_000.0, "alone": 12_000.0}


def test_heartbeat_headroom_is_of_members_of_groups(spark):
    rows = []
    for client, longest in LONGEST.items():
        for push, part in enumerate((0.5, 1.0, 0.25)):
            at_ms = BEGIN_MS + push * 10_000
            given = {
                "client_instance_id": client,
                "client_id": client,
                "group_id": None if client == "alone" else f"group-of-{client}",
                "push_interval_ms": 10_000,
                "metric": "org.apache.kafka.consumer.fetch.manager.fetch.throttle.time.max",
                "kind": "gauge",
                "value": longest * part,
                "time": datetime.fromtimestamp(at_ms / 1000, tz=UTC),
                "role": "consumer",
                "measure": "throttle_max_ms",
            }
            rows.append(tuple(given.get(field.name) for field in MEASURED.schema))
    points = spark.createDataFrame(rows, ddl(MEASURED.schema))
    found = {row["client_id"]: row for row in throttled(points, max_poll_interval_ms=10_000).collect()}
    assert {name: row["depth_ms"] for name, row in found.items()} == LONGEST
    assert {name: row["heartbeat_headroom_ms"] for name, row in found.items()} == {
        "in-time": 6_000.0, "lost": -2_000.0, "alone": None
    }  # fmt: skip
    assert found["lost"]["group_id"] == "group-of-lost"
    assert (found["lost"]["pushes"], found["lost"]["quota_key"]) == (3, "consumer_byte_rate")
    assert found["lost"]["start"].timestamp() * 1000 == BEGIN_MS - 10_000
