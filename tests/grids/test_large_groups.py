"""A group of the protocol of KIP-848 with as many members as `make test` gives a classic one."""

from tests.integration.test_broker_strangers import MEMBERS, a_consumer_group_is_balanced


def test_a_consumer_group_of_a_thousand_members_is_balanced() -> None:
    a_consumer_group_is_balanced(MEMBERS)
