import pytest

from kclient_quota.admin.effective import EffectiveQuotas
from kclient_quota.errors import ConfigError
from kclient_quota.quota.entity import DEFAULT, ClientQuotaEntity, Name

of = ClientQuotaEntity.of

# Most specific first, as KIP-546's draft lists them.
LEVELS: list[tuple[Name | None, Name | None]] = [
    ("u", "c"),
    ("u", DEFAULT),
    ("u", None),
    (DEFAULT, "c"),
    (DEFAULT, DEFAULT),
    (DEFAULT, None),
    (None, "c"),
    (None, DEFAULT),
]


def configured(count: int) -> EffectiveQuotas:
    """The last `count` levels, with values 1001 to 1008 as in wrap41's case 66."""
    entries = [
        (of(user=user, client_id=client_id), {"producer_byte_rate": 1001.0 + number})
        for number, (user, client_id) in enumerate(LEVELS)
    ]
    return EffectiveQuotas(entries[8 - count :])


@pytest.mark.parametrize("removed", range(8))
def test_levels_removed_from_the_top(removed: int) -> None:
    (found,) = configured(8 - removed).describe(of(user="u", client_id="c"), include_overrides=True)
    assert found.value == 1001 + removed
    assert [entry.value for entry in found.overrides] == [1001.0 + rest for rest in range(removed + 1, 8)]
    assert found.decided_by.entity == of(user=LEVELS[removed][0], client_id=LEVELS[removed][1])


def test_each_kind_is_resolved_by_itself() -> None:
    quotas = EffectiveQuotas(
        [
            (of(user="u"), {"producer_byte_rate": 1}),
            (of(client_id="c"), {"producer_byte_rate": 2, "consumer_byte_rate": 3}),
            (of(ip="1.2.3.4"), {"connection_creation_rate": 4}),
        ]
    )
    found = quotas.describe(of(user="u", client_id="c"))
    assert [(quota.key, quota.value) for quota in found] == [("consumer_byte_rate", 3), ("producer_byte_rate", 1)]


def test_a_type_that_is_left_out_plays_no_part() -> None:
    assert [quota.value for quota in configured(8).describe(of(user="u"))] == [1003]
    assert [quota.value for quota in configured(8).describe(of(client_id="c"))] == [1007]
    assert [quota.value for quota in configured(8).describe(of(client_id="other"))] == [1008]
    assert EffectiveQuotas([]).describe(of(user="u")) == []


def test_a_user_named_like_the_default_is_not_the_default() -> None:
    assert [quota.value for quota in configured(8).describe(of(user="<default>"))] == [1006]


@pytest.mark.parametrize("entity", [of(user=DEFAULT), of(ip="1.2.3.4"), ClientQuotaEntity({})])
def test_what_no_client_can_be(entity: ClientQuotaEntity) -> None:
    with pytest.raises(ConfigError):
        configured(8).describe(entity)


def test_entities_of_other_types_are_nobodys_levels() -> None:
    quotas = EffectiveQuotas(
        [
            (of(user="u"), {"producer_byte_rate": 1}),
            (ClientQuotaEntity({"user": "u", "group": "g"}), {"producer_byte_rate": 2}),
            (ClientQuotaEntity({"group": "g"}), {"producer_byte_rate": 3}),
        ]
    )
    assert [quota.value for quota in quotas.describe(of(user="u", client_id="c"))] == [1]
