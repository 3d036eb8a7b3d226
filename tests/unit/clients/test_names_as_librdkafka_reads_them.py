"""Who a client is to its brokers: its client.id and user as librdkafka reads and sends them."""

import pytest

from kclient_quota.clients.limits import LimitFinder
from kclient_quota.clients.shared_pace import pace_key
from kclient_quota.cluster.limits import EffectiveLimits
from kclient_quota.cluster.security import parse_security
from kclient_quota.config import split

PLAIN = {"security.protocol": "sasl_plaintext", "sasl.mechanism": "PLAIN", "sasl.password": "secret"}
# as confluent-kafka 2.16.1 sent them to an embedded broker
SENT = [
    (None, "rdkafka"),
    ("", "rdkafka"),
    (" ", ""),
    (" \t\n\v\f\ra", "a"),
    ("a ", "a "),
    ("\xa0a", "\xa0a"),
    (5, "5"),
    ("a\0b", "a"),
    ("\0b", "rdkafka"),
]


def asked_for(conf):
    """The user and client.id whose quota is asked for."""
    asked = []

    def ask(conf, user, client_id, deadline_ms, *, fresh_ms):
        asked.append((user, client_id))
        return EffectiveLimits()

    rest, ours = split(conf)
    LimitFinder(ours, rest, byte_rate_key="producer_byte_rate", ask=ask).find()
    return asked


@pytest.mark.parametrize(("written", "sent"), SENT, ids=[repr(written) for written, _ in SENT])
def test_the_quota_is_asked_for_of_the_client_id_that_brokers_see(written, sent):
    conf = {"bootstrap.servers": "a:1", "client.id": written}
    assert asked_for(conf) == [(None, sent)]
    assert pace_key(*split(conf), None) == pace_key(*split(conf | {"client.id": sent or " "}), None)


def test_and_of_the_user_that_logs_in():
    conf = PLAIN | {"bootstrap.servers": "a:1", "sasl.username": " alice", "security.protocol": " SASL_PLAINTEXT"}
    assert asked_for(conf) == [("alice", "rdkafka")]
    assert pace_key(*split(conf), None) == pace_key(*split(conf | {"sasl.username": "alice"}), None)
    sasl = parse_security(conf | {"sasl.password": " secret", "sasl.mechanism": " PLAIN"}).sasl
    assert sasl is not None
    assert (sasl.mechanism, sasl.username, sasl.password) == ("PLAIN", "alice", "secret")


@pytest.mark.parametrize("protocol", [None, "plaintext", "ssl"])
def test_a_user_who_does_not_log_in_is_none(protocol):
    """What is left over in the configuration of a cluster without logins."""
    conf = PLAIN | {"bootstrap.servers": "a:1", "sasl.username": "alice", "security.protocol": protocol}
    assert asked_for(conf) == [(None, "rdkafka")]
    assert asked_for(conf | {"sasl.mechanism": "OAUTHBEARER"}) == [(None, "rdkafka")]
    assert pace_key(*split(conf), None) == pace_key(*split(conf | {"sasl.username": "bob"}), None)


def test_certificates_that_are_shown_to_nobody_hide_nobody():
    conf = {"bootstrap.servers": "a:1", "ssl.certificate.location": "/x.pem"}
    assert asked_for(conf) == [(None, "rdkafka")]
    assert pace_key(*split(conf), None) == pace_key(*split(conf | {"ssl.certificate.location": "/y.pem"}), None)
    assert asked_for(conf | {"security.protocol": "ssl"}) == []
