import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kclient_quota.admin.sources import FileStore, NoStore
from kclient_quota.admin.units import (
    UNITS,
    QuotaUnit,
    Sources,
    altered,
    changes,
    configured,
    parse_quota,
    parse_value,
    sources_of,
    to_write,
)
from kclient_quota.errors import ConfigError
from kclient_quota.quota.entity import DEFAULT, ClientQuotaEntity
from kclient_quota.quota.resolution import levels

of = ClientQuotaEntity.of
KEY = "producer_byte_rate"
BROKER_BPS, BPS, SHARES = (QuotaUnit(KEY, unit) for unit in UNITS[KEY])


def test_names_and_units():
    assert parse_quota(KEY) == BROKER_BPS
    assert parse_quota("request_percentage") == QuotaUnit("request_percentage", "percent")
    assert parse_quota("request_percentage:shares").unit == "shares"
    assert str(parse_quota("made_up")) == "made_up"
    for text, words in [
        (f"{KEY}:gbps", "its units are broker_bps, bps, shares"),
        ("controller_mutation_rate:bps", "its units are mutations"),
        ("made_up:bps", "leave the unit out"),
        (":bps", "is no quota"),
        (f"{KEY}:", "is no quota"),
    ]:
        with pytest.raises(ConfigError, match=words):
            parse_quota(text)
    for text in ("nan", "inf", "1e", ""):
        with pytest.raises(ConfigError, match="no number"):
            parse_value(BPS, text)


def test_a_rate_of_the_cluster_is_divided_and_never_nothing():
    assert to_write({of(user="u"): {BPS: 10.0}}, {}, 3) == {of(user="u"): {KEY: 3.0}}
    assert to_write({of(user="u"): {BPS: 2.0}}, {}, 3) == {of(user="u"): {KEY: 1.0}}


def test_shares_are_of_their_sum():
    asked = {of(user=DEFAULT): {SHARES: 1.0}, of(user="u"): {SHARES: 2.0}, of(user="v"): {SHARES: 4.0}}
    assert [values[KEY] for values in to_write(asked, {KEY: 70.0}, 1).values()] == [10.0, 20.0, 40.0]
    percent = {of(user="u"): {QuotaUnit("request_percentage", "shares"): 1.0}}
    assert to_write(percent, {"request_percentage": 12.5}, 1) == {of(user="u"): {"request_percentage": 12.5}}
    with pytest.raises(ConfigError, match=f"{KEY}:shares needs a capacity"):
        to_write(asked, {}, 1)


def test_every_unit_is_resolved_by_itself_and_the_lowest_counts():
    asked = {
        of(user="u", client_id="c"): {BPS: 900.0},
        of(user=DEFAULT, client_id="c"): {BROKER_BPS: 100.0},
        of(client_id="c"): {BROKER_BPS: 5.0},
        of(user="u"): {BPS: 30.0},
        of(ip="1.2.3.4"): {QuotaUnit("connection_creation_rate", "connections"): 7.0},
    }
    written = to_write(asked, {}, 3)
    assert {str(entity): next(iter(values.values())) for entity, values in written.items()} == {
        "{user=u, client-id=c}": 100.0,
        "{user=<default>, client-id=c}": 100.0,
        "{client-id=c}": 5.0,
        "{user=u}": 10.0,
        "{ip=1.2.3.4}": 7.0,
    }


names = st.sampled_from(["a", "b", DEFAULT, None])
entities = st.tuples(names, names).filter(any).map(lambda pair: of(user=pair[0], client_id=pair[1]))
wishes = st.dictionaries(
    entities,
    st.dictionaries(st.sampled_from([BROKER_BPS, BPS, SHARES]), st.integers(1, 1000).map(float), min_size=1),
    max_size=8,
)


def per_broker(asked, user, client_id):
    """By brute force: each unit's first level of a client that has a name for both."""
    shares = sum(values.get(SHARES, 0) for values in asked.values()) or 1
    found = []
    for unit in (BROKER_BPS, BPS, SHARES):
        for level_user, level_client in levels(user, client_id):
            values = asked.get(of(user=level_user, client_id=level_client), {})
            if unit in values:
                value = values[unit]
                worth = {BROKER_BPS: value, BPS: max(1, value // 4), SHARES: max(1, 5000 * value / shares // 1)}
                found.append(worth[unit])
                break
    return min(found, default=None)


@given(wishes)
def test_pairs_get_what_brute_force_says(asked):
    written = to_write(asked, {KEY: 5000.0}, 4)
    assert set(written) == set(asked)
    for entity, values in written.items():
        if isinstance(entity.user, str) and isinstance(entity.client_id, str):
            assert values[KEY] == per_broker(asked, entity.user, entity.client_id)


@given(wishes)
def test_what_is_kept_and_written_gives_back_what_was_asked_for(asked):
    written = to_write(asked, {KEY: 5000.0}, 4)
    sources = sources_of(asked, written, {KEY: 5000.0})
    assert configured(sources, written) == asked
    assert to_write(configured(sources, written), {KEY: 5000.0}, 4) == written
    assert (KEY in sources.capacity) == any(SHARES in values for values in asked.values())


def test_alterations_and_changes():
    u = of(user="u")
    asked = altered({}, u, {BPS: 5.0, BROKER_BPS: 2.0})
    assert altered(asked, u, {}, {BPS}) == {u: {BROKER_BPS: 2.0}}
    assert altered(asked, u, {}, {BPS, BROKER_BPS, SHARES}) == {}
    assert changes({u: {"a": 1.0, "b": 2.0}}, {u: {"a": 1.0, "c": 3.0}}) == {u: {"c": 3.0, "b": None}}
    assert changes({u: {"a": 1.0}}, {}) == {u: {"a": None}}


def test_a_file_keeps_everything(tmp_path):
    store = FileStore(tmp_path / "units.json")
    assert not store.load()
    sources = Sources({of(user="ü=,", client_id=DEFAULT): {BPS: 5.0}, of(user="<default>"): {SHARES: 1.5}}, {KEY: 9.0})
    store.save(Sources(), sources)
    assert store.load() == sources
    assert [path.name for path in tmp_path.iterdir()] == ["units.json"]


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "{}",
        json.dumps({"version": 1, "records": [{"key": {}, "value": 1}]}),
        json.dumps({"version": 1, "records": [{"key": {"capacity": "a"}, "value": "x"}]}),
        json.dumps({"version": 2, "records": []}),
        json.dumps(
            {"version": 1, "records": [{"key": {"entity": {"user": "u"}, "name": KEY, "unit": "mph"}, "value": 1}]}
        ),
    ],
)
def test_a_file_that_is_something_else(tmp_path, text):
    path = tmp_path / "units.json"
    path.write_text(text)
    with pytest.raises(ConfigError):
        FileStore(path).load()
    with pytest.raises(ConfigError):
        FileStore(tmp_path).load()
    with pytest.raises(ConfigError):
        FileStore(tmp_path / "no" / "folder").save(Sources(), Sources())


def test_without_a_store_nothing_may_need_one():
    assert not NoStore().load()
    NoStore().save(Sources(), Sources())
    with pytest.raises(ConfigError, match="--units-store"):
        NoStore().save(Sources(), Sources({of(user="u"): {BPS: 1.0}}))


def test_a_file_of_sources_that_is_no_text_is_said_to_be_none(tmp_path):
    path = tmp_path / "units"
    path.write_bytes(b"\xe4\xff")
    with pytest.raises(ConfigError, match="this is no file of quota sources"):
        FileStore(path).load()
