"""Which entry decides: our resolution against a transcription of Kafka's rules, and an answer whatever happens."""

from __future__ import annotations

from random import Random

import pytest

from kclient_quota.cluster.limits import ANONYMOUS, EffectiveLimits, discover_limit, resolve
from kclient_quota.quota.entity import DEFAULT, ClientQuotaEntity

KEYS = ("producer_byte_rate", "consumer_byte_rate", "request_percentage")


def kafkas_limit(entries, key, user, client_id):
    """`DefaultQuotaCallback.quotaMetricTags` and `quotaLimit`, written out level by level."""
    found = {
        (entity.entries.get("user"), entity.entries.get("client-id")): values[key]
        for entity, values in entries
        if key in values
    }
    for level in (
        (user, client_id),
        (user, DEFAULT),
        (user, None),
        (DEFAULT, client_id),
        (DEFAULT, DEFAULT),
        (DEFAULT, None),
        (None, client_id),
        (None, DEFAULT),
    ):
        if level in found:
            return found[level]
    return None


def test_each_kind_of_quota_is_resolved_for_itself():
    rng = Random(546)
    names = [(user, client) for user in (None, DEFAULT, "u", "v") for client in (None, DEFAULT, "c", "d")]
    for _ in range(300):
        entries = []
        for user, client in rng.sample(names[1:], rng.randrange(8)):
            values = {key: float(rng.randrange(1, 1000)) for key in KEYS if rng.random() < 0.5}
            entries.append((ClientQuotaEntity.of(user=user, client_id=client), values))
        limits = resolve(entries, "u", "c")
        for key in KEYS:
            expected = kafkas_limit(entries, key, "u", "c")
            assert getattr(limits, key) == expected
            assert (key in limits.deciding) == (expected is not None)


def test_the_deciding_entries_are_named():
    user = ClientQuotaEntity.of(user="alice")
    everyone = ClientQuotaEntity.of(client_id=DEFAULT)
    assert resolve([], "alice", "c").decided_by is None
    assert resolve([(user, {"producer_byte_rate": 1.0, "consumer_byte_rate": 2.0})], "alice", "c").decided_by == (
        "{user=alice}"
    )
    both = resolve([(user, {"producer_byte_rate": 1.0}), (everyone, {"request_percentage": 5.0})], "alice", "c")
    assert both.decided_by == "producer_byte_rate of {user=alice}, request_percentage of {client-id=<default>}"
    assert resolve([(ClientQuotaEntity.of(user=DEFAULT), {"producer_byte_rate": 1.0})], ANONYMOUS, "c").deciding == {
        "producer_byte_rate": ClientQuotaEntity.of(user=DEFAULT)
    }


@pytest.mark.parametrize(
    ("conf", "reason"),
    [
        ({}, "bootstrap.servers is missing"),
        ({"bootstrap.servers": "127.0.0.1:1", "security.protocol": "x"}, "security.protocol"),
        ({"bootstrap.servers": "127.0.0.1:1"}, "127.0.0.1:1 did not accept a connection"),
    ],
)
def test_asking_never_raises(conf, reason):
    limits = discover_limit(conf, "u", "c", 1000)
    assert limits.denied is not None
    assert reason in limits.denied
    assert (limits.producer_byte_rate, limits.samples, limits.window_ms) == (None, 11, 1000)
    assert limits == EffectiveLimits(denied=limits.denied, is_away="did not accept" in reason)
