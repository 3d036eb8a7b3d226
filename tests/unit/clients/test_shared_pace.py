"""Clients that a broker counts together take turns."""

import gc
import weakref
from functools import partial
from typing import Any

import pytest

from kclient_quota.clients.shared_pace import HUNGRY_MS, PaceKey, SharedPace, pace_key, shared_limit, shared_pace
from kclient_quota.config import split
from kclient_quota.pacing.neighbours import Need, Part
from kclient_quota.pacing.pacer import Pacer

pytestmark = pytest.mark.usefixtures("only_what_is_new")


class Client:
    """Somebody who sends."""


def test_one_pace_for_the_same_key_as_long_as_anybody_has_it() -> None:
    key = PaceKey("a", "id", None, "alice")
    one, bob = shared_pace(key), shared_pace(key._replace(principal="bob"))
    assert shared_pace(key) is one is not bob
    assert one.lock is bob.lock  # who becomes another user goes on with it
    other = shared_pace(key._replace(client_id="other"))
    assert other is not one
    assert other.lock is not one.lock
    assert one.pacer(1, Pacer) is one.pacer(1, Pacer)
    assert one.pacer(2, Pacer) is not one.pacer(1, Pacer)
    gone = weakref.ref(one)
    del one
    gc.collect()
    assert gone() is None


def test_whoever_has_had_least_of_those_who_want_goes_first() -> None:
    pace, clients = SharedPace(), [Client() for _ in range(4)]
    had = [0] * 4
    for now_ms in range(0, 40_000, 10):
        allowed = [number for number, client in enumerate(clients) if pace.may_go(client, 1, now_ms)]
        size = 1_000 * (allowed[0] + 1)
        pace.on_sent(clients[allowed[0]], 1, size)
        had[allowed[0]] += size
    assert max(had) - min(had) <= 8_000


def test_nobody_waits_for_one_that_wants_nothing() -> None:
    pace, busy, idle = SharedPace(), Client(), Client()
    assert pace.may_go(idle, 1, 0)
    assert pace.may_go(busy, 1, 0)
    pace.on_sent(busy, 1, 5_000)
    assert not pace.may_go(busy, 1, 10)
    assert pace.may_go(busy, 1, HUNGRY_MS)
    # Whoever comes back has nothing to make up for.
    pace.on_sent(busy, 1, 5_000_000)
    assert pace.may_go(busy, 1, HUNGRY_MS + 10)
    assert pace.may_go(idle, 1, 2 * HUNGRY_MS)
    pace.on_sent(idle, 1, 1)
    assert pace.may_go(busy, 1, 2 * HUNGRY_MS + 10)


def test_consumers_of_one_key_share_a_limit() -> None:
    key = PaceKey("a", "id", None, "alice")
    one, same, other = shared_limit(key), shared_limit(key), shared_limit(key._replace(cluster="b"))
    assert one is same
    assert one is not other
    first, second = Client(), Client()
    need = Need(True, 0, 0)
    assert one.part(first, 1, need, 1_000) == Part(1_000, 1)
    assert one.part(second, 1, need, 1_000) == Part(500, 2)
    one.leave(first)
    assert one.part(second, 1, need, 1_000) == Part(1_000, 1)


@pytest.mark.parametrize(
    ("conf", "is_shared"),
    [
        ({"bootstrap.servers": "b:2,a:1"}, True),
        ({"bootstrap.servers": " a:1, b:2 ,"}, True),
        ({"ssl.certificate.location": "other.pem"}, True),  # who has logged in is known by that name
        ({"quota.user": "alice"}, True),
        ({"quota.user": "bob"}, False),
        ({"group.id": "other", "linger.ms": 5}, True),
        ({"client.id": "other"}, False),
        ({"sasl.username": "bob"}, False),
        ({"bootstrap.servers": "c:3"}, False),
        ({"quota.limit.source": "learned"}, False),
    ],
)
def test_what_a_broker_counts_together_has_one_key(conf: dict[str, str], is_shared: bool) -> None:
    base = {"bootstrap.servers": "a:1,b:2", "client.id": "app", "sasl.username": "alice"}
    base |= {"security.protocol": "sasl_ssl", "sasl.mechanism": "PLAIN"}
    keys = [pace_key(*split({**base, **more}), None) for more in ({}, conf)]
    assert (keys[0] == keys[1]) is is_shared


SSL = {"security.protocol": "ssl"}
TOKEN = {"security.protocol": "sasl_ssl", "sasl.mechanisms": "OAUTHBEARER"}
TICKET = {"security.protocol": "SASL_SSL"}


def token(of: str) -> str:
    return of


class Tokens:
    def token(self, of: str) -> str:
        return of


TOKENS = Tokens()


@pytest.mark.parametrize(
    ("first", "second", "is_shared"),
    [
        ({**SSL, "ssl.certificate.pem": "A", "ssl.key.pem": "a"}, {**SSL, "ssl.certificate.pem": "B"}, False),
        ({**SSL, "ssl.certificate.pem": "A", "ssl.key.pem": "a"}, {**SSL, "ssl.certificate.pem": "A"}, True),
        ({**SSL, "ssl.certificate.location": "A"}, {**SSL, "ssl.certificate.location": "B"}, False),
        ({**SSL, "ssl.keystore.location": "A"}, {**SSL, "ssl.keystore.location": "B"}, False),
        ({**SSL, "ssl.ca.location": "A"}, {**SSL, "ssl.ca.location": "B"}, True),
        ({**SSL, "ssl.certificate.pem": "A", "quota.user": "u"}, {**SSL, "quota.user": "u"}, True),
        ({**TOKEN, "sasl.oauthbearer.client.id": "A"}, {**TOKEN, "sasl.oauthbearer.client.id": "B"}, False),
        ({**TOKEN, "sasl.oauthbearer.client.id": "A"}, {**TOKEN, "sasl.oauthbearer.client.id": "A"}, True),
        ({**TOKEN, "oauth_cb": token}, {**TOKEN, "oauth_cb": token}, True),
        ({**TOKEN, "oauth_cb": token}, {**TOKEN, "oauth_cb": Tokens().token}, False),
        ({**TOKEN, "oauth_cb": TOKENS.token}, {**TOKEN, "oauth_cb": TOKENS.token}, True),
        ({**TOKEN, "oauth_cb": partial(token, "A")}, {**TOKEN, "oauth_cb": partial(token, "A")}, True),
        ({**TOKEN, "oauth_cb": partial(token, "A")}, {**TOKEN, "oauth_cb": partial(token, "B")}, False),
        ({**TOKEN, "oauth_cb": partial(token, of=TOKENS)}, {**TOKEN, "oauth_cb": partial(token, of=TOKENS)}, True),
        ({**TOKEN, "sasl.username": "A"}, {**TOKEN, "sasl.username": "B"}, True),  # which nobody reads
        ({**TICKET, "sasl.kerberos.principal": "A"}, {**TICKET, "sasl.kerberos.principal": "B"}, False),
        ({**TICKET, "sasl.kerberos.keytab": "A"}, {**TICKET, "sasl.kerberos.keytab": "B"}, False),
    ],
)
def test_principals_without_a_name_are_told_apart(
    first: dict[str, Any], second: dict[str, Any], is_shared: bool
) -> None:
    """Two of them that shared a pace had half of their quotas each."""
    keys = [
        pace_key(*split({"bootstrap.servers": "a:1", "client.id": "app", **conf}), None) for conf in (first, second)
    ]
    assert (keys[0] == keys[1]) is is_shared
    assert hash(keys[0])


def test_a_key_keeps_nothing_alive() -> None:
    """A callback often has its client, which has the pace: it could never go."""
    tokens = Tokens()
    key = pace_key(*split({"bootstrap.servers": "a:1", **TOKEN, "oauth_cb": tokens.token}), None)
    gone = weakref.ref(tokens)
    del tokens
    gc.collect()
    assert gone() is None
    assert key


def test_a_client_that_is_gone_is_forgotten() -> None:
    pace, one, other = SharedPace(), Client(), Client()
    assert pace.may_go(other, 1, 0)
    pace.on_sent(one, 1, 10)
    assert not pace.may_go(one, 1, 1)
    del other
    gc.collect()
    assert pace.may_go(one, 1, 2)
