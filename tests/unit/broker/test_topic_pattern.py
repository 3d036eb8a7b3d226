"""Patterns of subscriptions: what `re` says, in linear time."""

import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kclient_quota.broker.groups.consumer.topic_pattern import TopicPattern

pieces = st.recursive(
    st.sampled_from(["a", "b", ".", "[ab]", "[^a]", r"\d", "[a-c]", r"\w", r"\.", "x-1"]),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map(lambda both: f"(?:{both[0]}|{both[1]})"),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{1,3}", "{0,2}", "*?"])).map(
            lambda both: f"({both[0]}){both[1]}"
        ),
    ),
    max_leaves=8,
)


@settings(max_examples=300, deadline=None)
@given(pieces, st.lists(st.text("abc1.-x", max_size=8), max_size=20))
def test_it_matches_what_re_matches(text, names):
    pattern, oracle = TopicPattern(text), re.compile(text)
    for name in names:
        assert pattern.matches(name) == (oracle.fullmatch(name) is not None)


@pytest.mark.parametrize("text", ["^orders.*$", "(?i)ORDERS-[A-C]", "orders|payments", "", "a{3,}", "^$"])
def test_anchors_flags_and_edges(text):
    pattern, oracle = TopicPattern(text), re.compile(text)
    for name in ["orders", "orders-b", "Orders-B", "payments", "", "aa", "aaaa", "orders2"]:
        assert pattern.matches(name) == (oracle.fullmatch(name) is not None)


@pytest.mark.parametrize("text", ["(a+)+b", "(a|a)*b", "(a|aa)+$b", "a*a*a*a*a*a*b", "(.*)*x", "((a*)*)*b"])
def test_no_pattern_takes_its_time(text):
    started = time.thread_time()
    pattern = TopicPattern(text)
    for length in range(1, 249):
        assert not pattern.matches("a" * length)
    assert time.thread_time() - started < 0.5


def test_ten_thousand_topics():
    names = [f"orders-{number}" for number in range(10_000)]
    pattern = TopicPattern("orders-.*[13579]")
    started = time.thread_time()
    assert sum(map(pattern.matches, names)) == 5_000
    assert time.thread_time() - started < 0.5
    started = time.thread_time()
    assert sum(map(pattern.matches, names)) == 5_000
    assert time.thread_time() - started < 0.05


@pytest.mark.parametrize("text", [r"(a)\1", "(?=a)b", "(?<!a)b", "(", "[", r"\bword", "(a{999}){999}", "(?>a)b"])
def test_what_cannot_be_linear_is_refused(text):
    with pytest.raises(ValueError, match=r".+"):
        TopicPattern(text)
