"""What holds very much is let go of in turns, and nothing that somebody else holds is changed by it."""

import itertools

import pytest

from kclient_quota.broker.request import exchange
from kclient_quota.broker.request.context import ELEMENTS_AT_ONCE
from kclient_quota.broker.request.long.letting_go import let_go
from kclient_quota.wire.messages import DeleteTopicsRequest, DeleteTopicsResponse, MetadataRequest
from tests.unit.broker.test_others_turns import Cluster

MANY = 5 * ELEMENTS_AT_ONCE


class Freed:
    count = 0

    def __del__(self):
        Freed.count += 1


def named(thing):
    return MetadataRequest.MetadataRequestTopic(name=thing)


@pytest.mark.parametrize(
    "holding",
    [
        lambda: [Freed() for _ in range(MANY)],
        lambda: {Freed() for _ in range(MANY)},
        lambda: frozenset(Freed() for _ in range(MANY)),
        lambda: MetadataRequest(topics=[named(Freed()) for _ in range(MANY)]),
        lambda: [MetadataRequest(topics=[named(Freed())]) for _ in range(MANY)],
        lambda: DeleteTopicsRequest(topics=[], topic_names=[Freed() for _ in range(MANY)]),
        lambda: [None, (), "text", [[[Freed() for _ in range(MANY)]]]],
    ],
    ids=["list", "set", "frozenset", "message", "messages", "names", "nested"],
)
def test_no_turn_frees_more_than_it_may_and_in_the_end_all_is_free(holding):
    Freed.count, seen, held = 0, [0], [holding()]
    for _ in let_go(held):
        seen.append(Freed.count)
    seen.append(Freed.count)
    assert max(after - before for before, after in itertools.pairwise(seen)) <= ELEMENTS_AT_ONCE
    assert (Freed.count, held) == (MANY, [])


def test_what_somebody_else_holds_stays_as_it_is():
    names = [named(str(number)) for number in range(MANY)]
    request = MetadataRequest(topics=names)
    numbers = frozenset(range(MANY))
    assert len(list(let_go([request, numbers]))) >= 2 * MANY // ELEMENTS_AT_ONCE
    assert (request.topics is names, len(names), len(numbers)) == (True, MANY, MANY)


def test_little_takes_no_turn():
    assert list(let_go([MetadataRequest(topics=[named("t")]), None])) == []


@pytest.mark.parametrize("is_seen_to", [True, False], ids=["by-a-handler", "by-a-hook"])
@pytest.mark.parametrize(("count", "is_long"), [(3, False), (MANY, True)])
def test_a_long_request_is_let_go_of_once_it_has_been_answered(monkeypatch, count, is_long, is_seen_to):
    cluster, seen = Cluster(), []
    if not is_seen_to:
        cluster.controls.add(None, lambda _: DeleteTopicsResponse(), None)

    def let_go_of(held):
        seen.append((cluster.outcome is not None, [type(each) for each in held]))
        return let_go(held)

    monkeypatch.setattr(exchange, "let_go", let_go_of)
    cluster.send(DeleteTopicsRequest(topics=[DeleteTopicsRequest.DeleteTopicState(name=str(n)) for n in range(count)]))
    for _ in range(100):
        cluster.scheduler.pass_ms(0)
    assert cluster.outcome is not None
    assert seen == ([(True, [DeleteTopicsRequest])] if is_long else [])
