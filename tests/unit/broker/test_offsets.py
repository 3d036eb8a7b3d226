"""Committed offsets, inside and outside transactions."""

from kclient_quota.broker.groups.committed_offsets import CommittedOffset, OffsetStore

AT_1, AT_2, AT_3 = CommittedOffset(1), CommittedOffset(2, 7, "note"), CommittedOffset(3)


def test_commit_fetch_delete_and_what_the_observer_is_told():
    told = []
    store = OffsetStore([lambda *change: told.append(change)])
    store.commit("g", "t", 0, AT_1)
    store.commit("g", "t", 0, AT_2)
    store.commit("g", "u", 1, AT_3)
    assert store.fetch("g", "t", 0) == AT_2
    assert store.fetch("g", "t", 1) is None
    assert store.fetch("h", "t", 0) is None
    assert sorted(store.fetch_all("g"), key=str) == [("t", 0, AT_2), ("u", 1, AT_3)]
    store.delete("g", "t", 0)
    store.delete("g", "t", 0)
    assert told == [("g", "t", 0, AT_1), ("g", "t", 0, AT_2), ("g", "u", 1, AT_3), ("g", "t", 0, None)]
    at_once = []
    for _ in range(2):
        store.leave_observers.append(lambda positions, pending: at_once.append((list(positions), pending)))
    assert list(store.delete_group("g")) == [("g", "u", 1)]
    assert at_once == 2 * [([("g", "u", 1)], [])]
    assert store.groups() == []


def test_a_deleted_topic_takes_its_offsets_along():
    store = OffsetStore()
    store.commit("g", "t", 0, AT_1)
    store.commit("h", "t", 1, AT_1)
    store.commit("h", "u", 1, AT_1)
    store.commit_pending(9, "h", "t", 2, AT_1)
    assert store.delete_topic("t") == [("g", "t", 0), ("h", "t", 1)]
    assert not store.has_pending("h", "t", 2)
    assert [list(store.fetch_all(g)) for g in ("g", "h")] == [[], [("u", 1, AT_1)]]


def test_a_transaction_shows_its_offsets_when_it_commits():
    told = []
    store = OffsetStore([lambda *change: told.append(change)])
    store.commit("g", "t", 0, AT_1)
    store.commit_pending(9, "g", "t", 0, AT_2)
    assert store.fetch("g", "t", 0) == AT_1
    assert store.has_pending("g", "t", 0)
    assert not store.has_pending("g", "t", 1)
    store.complete(9, commit=True)
    assert store.fetch("g", "t", 0) == AT_2
    assert not store.has_pending("g", "t", 0)
    assert told == [("g", "t", 0, AT_1), ("g", "t", 0, AT_2)]


def test_an_aborted_transaction_leaves_nothing():
    store = OffsetStore()
    store.commit_pending(9, "g", "t", 0, AT_2)
    store.complete(9, commit=False)
    store.complete(9, commit=True)
    assert store.fetch("g", "t", 0) is None


def test_a_plain_commit_after_the_transactional_one_wins():
    store = OffsetStore()
    store.commit_pending(9, "g", "t", 0, AT_2)
    store.commit("g", "t", 0, AT_3)
    store.complete(9, commit=True)
    assert store.fetch("g", "t", 0) == AT_3


def test_deleting_reaches_into_open_transactions():
    store = OffsetStore()
    store.commit_pending(9, "g", "t", 0, AT_2)
    store.commit_pending(9, "g", "t", 1, AT_2)
    store.delete("g", "t", 0)
    store.delete_group("g")
    store.complete(9, commit=True)
    assert list(store.fetch_all("g")) == []
