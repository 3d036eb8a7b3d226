"""Case 107: ClientQuotasRequestTest.matchUserClientEntities, evaluated here instead of on a broker."""

import pytest

from kclient_quota.admin.model import (
    ClientQuotaAlteration,
    ClientQuotaFilter,
    ClientQuotaFilterComponent,
    ClientQuotaMatchType,
)
from kclient_quota.errors import ConfigError
from kclient_quota.quota.entity import CLIENT_ID, DEFAULT, IP, USER, ClientQuotaEntity

ENTITIES = [
    *(
        ClientQuotaEntity.of(user=user, client_id=client_id)
        for user, client_id in [
            ("user-1", "client-id-1"),
            ("user-2", "client-id-1"),
            ("user-3", "client-id-2"),
            (DEFAULT, "client-id-1"),
            ("user-1", DEFAULT),
            ("user-3", DEFAULT),
        ]
    ),
    *(ClientQuotaEntity.of(user=user) for user in ("user-1", "user-2", "user-3", DEFAULT)),
    ClientQuotaEntity.of(client_id="client-id-2"),
    *(ClientQuotaEntity.of(ip=ip) for ip in ("1.2.3.4", "2.3.4.5")),
]

exact = ClientQuotaFilterComponent.of_entity
default = ClientQuotaFilterComponent.of_default_entity
any_of = ClientQuotaFilterComponent.of_entity_type
prefix = ClientQuotaFilterComponent.of_prefix


@pytest.mark.parametrize(
    ("components", "strict", "count"),
    [
        ([exact(USER, "user-1")], False, 3),
        ([exact(USER, "unknown")], False, 0),
        ([exact(CLIENT_ID, "client-id-2")], False, 2),
        ([default(USER)], False, 2),
        ([exact(USER, "user-2")], True, 1),
        ([exact(CLIENT_ID, "client-id-1")], True, 0),
        ([any_of(USER)], True, 4),
        ([any_of(USER)], False, 10),
        ([any_of(CLIENT_ID)], True, 1),
        ([any_of(CLIENT_ID)], False, 7),
        ([any_of(IP)], False, 2),
        ([], False, 13),
        ([], True, 0),
        ([prefix(USER, "user-")], False, 8),
        ([prefix(USER, "user-")], True, 3),
        ([prefix(USER, "")], True, 3),
        ([exact(USER, DEFAULT), prefix(CLIENT_ID, "client")], False, 1),
    ],
)
def test_counts_of_kafkas_own_test(components: list[ClientQuotaFilterComponent], strict: bool, count: int) -> None:
    wanted = ClientQuotaFilter(tuple(components), strict)
    assert sum(map(wanted.matches, ENTITIES)) == count


@pytest.mark.parametrize(
    ("user", "client_id"),
    [
        ("user-1", "client-id-2"),
        ("user-3", "client-id-1"),
        ("user-2", DEFAULT),
        (DEFAULT, "client-id-2"),
    ],
)
def test_exact_matches_of_what_is_not_there(user: str, client_id: str) -> None:
    wanted = ClientQuotaFilter.contains_only([exact(USER, user), exact(CLIENT_ID, client_id)])
    assert not any(map(wanted.matches, ENTITIES))


def test_contradictions_are_refused() -> None:
    with pytest.raises(ConfigError, match="EXACT needs a match"):
        ClientQuotaFilterComponent(USER, ClientQuotaMatchType.EXACT)
    with pytest.raises(ConfigError, match="ANY takes no match"):
        ClientQuotaFilterComponent(USER, ClientQuotaMatchType.ANY, "x")
    with pytest.raises(ConfigError, match="user stands in it twice"):
        ClientQuotaFilter.contains([any_of(USER), exact(USER, "a")])
    with pytest.raises(ConfigError, match="no operation"):
        ClientQuotaAlteration(ClientQuotaEntity.of(user="a"), ())
