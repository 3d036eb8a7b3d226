"""Brokers that throttle in a manner of their own: nothing lost, doubled or timed out, the group kept, the quota used.

The scenes wait rather than work, so those of all manners run side by side, each on a broker of its own.
"""

import logging
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.contract import manners
from tests.contract.manners import BY_HAND, FALLBACK, SCENES, SILENT, consume, produce


def test_clients_cope_with_every_manner_of_throttling(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "kclient_quota"), ThreadPoolExecutor(2 * len(SCENES)) as pool:
        producing = {name: pool.submit(produce, *scene[:2]) for name, scene in SCENES.items()}
        consuming = {name: pool.submit(consume, *scene[:2]) for name, scene in SCENES.items()}
    for name, (_, _, source) in SCENES.items():
        wrote, read = producing[name].result(), consuming[name].result()
        assert (name, wrote.source, read.source) == (name, source, source)
        assert (name, wrote.failed, wrote.errors, read.errors) == (name, [], [], [])
        assert (name, sum(wrote.timeouts.values()), sum(read.timeouts.values())) == (name, 0, 0)
        assert (name, read.moves) == (name, ["assign 1"])
        assert read.ids == [b"%06d" % number for number in range(len(read.ids))], name
    clients_that_learn = 2 * sum(source == "learned" for _, _, source in SCENES.values())
    assert sum(FALLBACK in record.getMessage() for record in caplog.records) == clients_that_learn


def test_who_is_told_of_no_throttle_keeps_to_a_limit_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manners, "PRODUCE_S", 9.0)
    monkeypatch.setattr(manners, "CONSUME_S", 9.0)
    with ThreadPoolExecutor(2) as pool:
        writing, reading = pool.submit(produce, SILENT, BY_HAND), pool.submit(consume, SILENT, BY_HAND)
    wrote, read = writing.result(), reading.result()
    assert (wrote.source, read.source) == ("config", "config")
    assert (wrote.failed, wrote.errors, read.errors) == ([], [], [])
    assert (sum(wrote.timeouts.values()), sum(read.timeouts.values()), read.moves) == (0, 0, ["assign 1"])
    assert read.ids == [b"%06d" % number for number in range(len(read.ids))]
    assert read.ids
