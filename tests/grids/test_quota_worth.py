"""What a quota is worth in virtual time: every cell in which the quota is the bound, and weighted lanes in each."""

import random

import pytest

from benchmarks.quota_worth import CODECS, DATA, MOST_MESSAGES, PARTITIONS, QUOTAS, cells, play
from kclient_quota.pacing.sending.lanes import Lane
from kclient_quota.simulation.batching import Batching
from kclient_quota.simulation.sending import Cell, SendingWorld, Source

LANED = [
    (data, codec, partitions, quota)
    for quota in QUOTAS
    for data in DATA
    for codec in CODECS
    for partitions in PARTITIONS
    if quota / Batching(data, codec).request_bytes(64) * 64 <= MOST_MESSAGES
]


@pytest.mark.parametrize("cell", cells(), ids=str)
def test_nearly_all_that_a_quota_is_worth_arrives_in_time(cell):
    row = play(cell, seconds=60)
    assert row.ratio >= 0.95
    assert row.p99_ms <= 1_200
    if cell[0] == "noise":
        assert row.p99_ms <= 300


@pytest.mark.parametrize("cell", LANED, ids=str)
def test_weighted_lanes_have_what_they_weigh(cell):
    data, codec, partitions, quota = cell
    lanes = (Lane("orders", weight=3), Lane("bulk"), Lane("logs", weight=2))
    sources = tuple(Source(lane=lane.name) for lane in lanes)
    played = Cell(Batching(data, codec), partitions, quota, sources=sources, lanes=lanes, seconds=45)
    sent = SendingWorld(played, random.Random(1)).run()
    total = sum(sent.lane_bytes.values())
    for lane in lanes:
        assert sent.lane_bytes[lane.name] / total == pytest.approx(lane.weight / 6, rel=0.05)
    assert sent.wire_bytes / quota / sent.seconds >= 0.97
