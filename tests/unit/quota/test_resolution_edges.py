"""Whom each of the eight levels measures together and limits, for every mixture of levels that have a quota."""

from itertools import product

import pytest

from kclient_quota.quota.callback import (
    QUOTA_TYPE_OF_KEY,
    ClientQuotaCallback,
    ClientQuotaType,
    DefaultQuotaCallback,
    level_of,
)
from kclient_quota.quota.entity import DEFAULT, QUOTA_KEYS, ClientQuotaEntity
from kclient_quota.quota.resolution import Level, QuotaLevels, QuotaTypesEnabled, levels

USER_CLIENT, USER, CLIENT = ("z", "z"), ("z", None), (None, "z")
"""One level of each kind, of nobody who is asked for."""


def enabled(*set_levels: Level, **options: bool) -> QuotaLevels:
    found = QuotaLevels(**options)
    for number, level in enumerate(set_levels, 1):
        found.set(level, float(number))
    return found


def test_kinds_of_levels_have_kafkas_numbers() -> None:
    assert [(kind.name, int(kind)) for kind in QuotaTypesEnabled] == [
        ("CLIENT_ID", 1),
        ("USER", 2),
        ("USER_CLIENT_ID", 4),
        ("CUSTOM", 8),
    ]
    assert int(QuotaTypesEnabled.NO_QUOTAS) == 0


def test_the_levels_in_order() -> None:
    every = [(user, client) for user in ("u", DEFAULT, None) for client in ("c", DEFAULT, None)]
    assert levels("u", "c") == tuple(every[:-1])


@pytest.mark.parametrize(
    ("set_levels", "tags"),
    [
        ((), ("", "c")),
        ((CLIENT,), ("", "c")),
        ((USER,), ("u", "")),
        ((USER_CLIENT,), ("u", "c")),
        ((CLIENT, USER), ("", "c")),
        ((CLIENT, USER_CLIENT), ("", "c")),
        ((USER, USER_CLIENT), ("", "c")),
        ((CLIENT, USER, USER_CLIENT), ("", "c")),
    ],
)
def test_whom_someone_without_a_quota_is_measured_with(set_levels: tuple[Level, ...], tags: tuple[str, str]) -> None:
    assert enabled(*set_levels).tags("u", "c") == tags


@pytest.mark.parametrize(
    ("level", "tags", "tags_without_client_id"),
    [
        (("u", "c"), ("u", "c"), ("", "")),
        (("u", DEFAULT), ("u", "c"), ("u", "")),
        (("u", None), ("u", ""), ("u", "")),
        ((DEFAULT, "c"), ("u", "c"), ("", "")),
        ((DEFAULT, DEFAULT), ("u", "c"), ("u", "")),
        ((DEFAULT, None), ("u", ""), ("u", "")),
        ((None, "c"), ("", "c"), ("", "")),
        ((None, DEFAULT), ("", "c"), ("", "")),
    ],
)
def test_whom_each_level_measures_together(
    level: Level, tags: tuple[str, str], tags_without_client_id: tuple[str, str]
) -> None:
    found = enabled(level, CLIENT, USER, USER_CLIENT)
    assert found.tags("u", "c") == tags
    assert found.tags("u", "") == tags_without_client_id
    assert found.tags("v", "d") == (
        {("u", "c"): ("", "d"), (DEFAULT, DEFAULT): ("v", "d"), (DEFAULT, None): ("v", "")}.get(level, ("", "d"))
    )


EVERY: tuple[Level, ...] = levels("u", "c")


def test_which_limit_counts_under_which_tags() -> None:
    """Of all levels set at once, those that are passed over one after the other."""
    expected: dict[tuple[str, str], tuple[Level, ...]] = {
        ("u", "c"): (("u", "c"), ("u", DEFAULT), (DEFAULT, "c"), (DEFAULT, DEFAULT)),
        ("u", ""): (("u", None), (DEFAULT, None), ("u", DEFAULT), (DEFAULT, DEFAULT)),
        ("", "c"): ((None, "c"), (None, DEFAULT)),
        ("", ""): ((None, DEFAULT),),
    }
    for tags, order in expected.items():
        found = enabled(*EVERY)
        for level in order:
            assert found.limit(tags) == 1.0 + EVERY.index(level)
            found.remove(level)
        assert found.limit(tags) is None


def test_which_limit_counts_for_clients_without_an_id_where_they_share_none() -> None:
    found = enabled(*EVERY, share_empty_client_id=False)
    assert (found.limit(("u", "")), found.limit(("", ""))) == (3.0, None)
    found.remove(("u", None))
    assert found.limit(("u", "")) == 6.0
    found.remove((DEFAULT, None))
    assert found.limit(("u", "")) is None


@pytest.mark.parametrize("share_empty", [True, False])
def test_every_level_that_matches_by_itself(share_empty: bool) -> None:
    with_client_part = {level for level in levels("u", "") if level[1] is not None}
    for level in levels("u", ""):
        found = enabled(level, USER, share_empty_client_id=share_empty)
        alone = [] if level in with_client_part and not share_empty else [(level, 1.0)]
        assert list(found.matches("u", "")) == alone
        assert list(enabled(level, share_empty_client_id=False).matches("u", "c")) == (
            [] if level[1] == "" else [(level, 1.0)]
        )


def test_a_kind_is_enabled_as_long_as_it_has_a_limit_whatever_the_others_have() -> None:
    kinds = {CLIENT: 1, USER: 2, USER_CLIENT: 4}
    for gone, kind in kinds.items():
        found = enabled(*kinds, *kinds)
        assert (int(found.types_enabled), len(found)) == (7, 3)
        found.remove(gone)
        assert (int(found.types_enabled), len(found)) == (7 - kind, 2)
        found.remove(gone)
        assert (int(found.types_enabled), len(found)) == (7 - kind, 2)
        found.set(gone, 5.0)
        assert int(found.types_enabled) == 7


def test_a_touched_kind_stays_enabled_where_types_are_sticky() -> None:
    found = enabled(USER, CLIENT, sticky_types=True)
    for level, kinds in ((USER, 3), (CLIENT, 3), (USER_CLIENT, 7), (USER_CLIENT, 7)):
        found.remove(level)
        assert (int(found.types_enabled), found.limit(("z", ""))) == (kinds, None)


def test_a_level_of_nothing_is_no_level() -> None:
    found = enabled(("u", None))
    found.set(("u", None), 0.0)
    assert found.limit(("u", "")) == 0.0
    assert list(found.matches("u", "c")) == [(("u", None), 0.0)]
    assert [found.tags(user, "c") for user in ("u", "v")] == [("u", ""), ("v", "")]


# Callbacks


def test_a_callback_must_say_tags_and_limits_and_nothing_else() -> None:
    class TagsOnly(ClientQuotaCallback):
        def quota_metric_tags(self, quota_type, principal, client_id):
            return {}

    class LimitOnly(ClientQuotaCallback):
        def quota_limit(self, quota_type, metric_tags):
            return None

    class Both(TagsOnly, LimitOnly):
        pass

    for incomplete in (TagsOnly, LimitOnly):
        with pytest.raises(TypeError, match="abstract"):
            incomplete()
    callback, entity = Both(), ClientQuotaEntity.of(user="u")
    assert callback.quota_reset_required(ClientQuotaType.PRODUCE) is False
    assert callback.update_cluster_metadata(None) is False
    assert callback.configure({}) is None
    assert callback.update_quota(ClientQuotaType.PRODUCE, entity, 1.0) is None
    assert callback.remove_quota(ClientQuotaType.PRODUCE, entity) is None
    assert callback.close() is None


def test_quota_types_have_kafkas_names_and_every_key_of_clients_has_one() -> None:
    assert {key: kind.value for key, kind in QUOTA_TYPE_OF_KEY.items()} == {
        "producer_byte_rate": "Produce",
        "consumer_byte_rate": "Fetch",
        "request_percentage": "Request",
        "controller_mutation_rate": "ControllerMutation",
        "request_rate": "RequestRate",
    }
    assert set(QUOTA_TYPE_OF_KEY) == set(QUOTA_KEYS) - {"connection_creation_rate"}


def test_kafkas_own_callback_keeps_the_types_apart() -> None:
    callback = DefaultQuotaCallback()
    entity = ClientQuotaEntity.of(user="a b")
    assert level_of(entity) == ("a%20b", None)
    assert level_of(ClientQuotaEntity.of(user=DEFAULT, client_id="a b")) == (DEFAULT, "a b")
    assert level_of(ClientQuotaEntity.of(client_id=DEFAULT)) == (None, DEFAULT)
    callback.update_quota(ClientQuotaType.FETCH, entity, 9.0)
    for quota_type in ClientQuotaType:
        fetch = quota_type is ClientQuotaType.FETCH
        assert callback.quota_types_enabled(quota_type) == (2 if fetch else 0)
        assert len(callback.levels(quota_type)) == fetch
        tags = callback.quota_metric_tags(quota_type, "a b", "c")
        assert tags == ({"user": "a%20b", "client-id": ""} if fetch else {"user": "", "client-id": "c"})
        assert callback.quota_limit(quota_type, {"user": "a%20b"}) == (9.0 if fetch else None)
        assert callback.quota_limit(quota_type, {}) is None
    callback.remove_quota(ClientQuotaType.FETCH, entity)
    assert callback.quota_types_enabled(ClientQuotaType.FETCH) == 0


def test_kafkas_own_callback_forgets_kinds_and_shares_the_default_client_id_unless_told_otherwise() -> None:
    default_client = ClientQuotaEntity.of(client_id=DEFAULT)
    for sticky, share in product((False, True), (False, True)):
        callback = DefaultQuotaCallback(sticky_types=sticky, share_empty_client_id=share)
        callback.update_quota(ClientQuotaType.PRODUCE, default_client, 4.0)
        assert callback.quota_limit(ClientQuotaType.PRODUCE, {}) == (4.0 if share else None)
        callback.remove_quota(ClientQuotaType.PRODUCE, default_client)
        assert callback.quota_types_enabled(ClientQuotaType.PRODUCE) == sticky
    plain = DefaultQuotaCallback()
    plain.update_quota(ClientQuotaType.PRODUCE, default_client, 4.0)
    assert plain.quota_limit(ClientQuotaType.PRODUCE, {}) == 4.0
    plain.remove_quota(ClientQuotaType.PRODUCE, default_client)
    assert plain.quota_types_enabled(ClientQuotaType.PRODUCE) == 0
