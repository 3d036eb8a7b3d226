"""Access control lists without a broker: what the contract suite cannot reach, and that they are kept."""

import pytest

from kclient_quota.broker.authorizer import Acl, AclOperation, AclPermission, Authorizer, PatternType, ResourceType
from kclient_quota.broker.configs.broker_properties import STANDARD_AUTHORIZER, BrokerProperties
from kclient_quota.broker.security.scram_credentials import credential
from kclient_quota.broker.storage.kept import KINDS
from kclient_quota.errors import ConfigError
from tests.unit.broker.handler_node import Node

READ, WRITE, TOPIC = AclOperation.READ, AclOperation.WRITE, ResourceType.TOPIC
ALLOW, DENY = AclPermission.ALLOW, AclPermission.DENY
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED


def acl(name, operation=WRITE, permission=ALLOW, pattern=LITERAL, principal="User:a", host="*"):
    return Acl(TOPIC, name, pattern, principal, host, operation, permission)


@pytest.fixture
def authorizer():
    made = Authorizer()
    made.configure(is_enabled=True, super_users=["User:root"], allows_unlisted=False)
    return made


def test_unguarded_everybody_may():
    assert Authorizer().may("User:a", "h", READ, TOPIC, "t")
    assert Authorizer().may_somewhere("User:a", "h", READ, TOPIC)


def test_hosts_and_everybody(authorizer):
    authorizer.add(acl("t", principal="User:*", host="10.0.0.1"))
    assert authorizer.may("User:x", "10.0.0.1", WRITE, TOPIC, "t")
    assert not authorizer.may("User:x", "10.0.0.2", WRITE, TOPIC, "t")
    assert authorizer.may("User:root", "10.0.0.2", WRITE, TOPIC, "t")


def test_the_unlisted_are_open_only_where_nothing_is_listed(authorizer):
    authorizer.configure(is_enabled=True, super_users=[], allows_unlisted=True)
    assert authorizer.may("User:a", "h", READ, TOPIC, "t")
    authorizer.add(acl("t", principal="User:b"))
    assert not authorizer.may("User:a", "h", READ, TOPIC, "t")
    authorizer.remove(acl("t", principal="User:b"))
    assert authorizer.may("User:a", "h", READ, TOPIC, "t")


@pytest.mark.parametrize(
    ("denied", "may"),
    [
        (acl("t", permission=DENY), False),
        (acl("*", permission=DENY), False),
        (acl("", permission=DENY, pattern=PREFIXED), False),
        (acl("t-", permission=DENY, pattern=PREFIXED), True),
        (acl("u", permission=DENY), True),
        (acl("t", READ, DENY), True),
    ],
)
def test_whoever_may_write_somewhere_may(authorizer, denied, may):
    assert not authorizer.may_somewhere("User:a", "h", WRITE, TOPIC)
    authorizer.add(acl("t"))
    authorizer.add(denied)
    assert authorizer.may_somewhere("User:a", "h", WRITE, TOPIC) is may


def test_lists_and_credentials_are_kept():
    node, after = Node(), Node()
    entry = acl("t", permission=DENY)
    node.cluster.authorizer.add(entry)
    node.cluster.scram = {("u", 1): credential(1, b"salt", b"salted", 4096), ("v", 2): None}
    for kind, key in (("acl", tuple(entry)), ("scram", ("u", 1)), ("scram", ("v", 2))):
        KINDS[kind].write(after.cluster, key, KINDS[kind].read(node.cluster, key))
    assert entry in after.cluster.authorizer
    assert after.cluster.scram == node.cluster.scram
    for kind, key in (("acl", tuple(entry)), ("scram", ("u", 1))):
        KINDS[kind].write(after.cluster, key, None)
    assert entry not in after.cluster.authorizer
    assert ("u", 1) not in after.cluster.scram


def test_another_authorizer_is_refused():
    BrokerProperties({"authorizer.class.name": STANDARD_AUTHORIZER})
    with pytest.raises(ConfigError, match="whose rules the embedded broker knows"):
        BrokerProperties({"authorizer.class.name": "com.example.Mine"})
