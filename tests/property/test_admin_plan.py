"""Files, plans and what is written, over random clusters and files."""

from hypothesis import given, settings
from hypothesis import strategies as st

from kclient_quota.admin.output import entity_text
from kclient_quota.admin.plan import asked_after, make_plan
from kclient_quota.admin.quota_file import FileEntry, QuotaFile, format_quota_file, parse_quota_file
from kclient_quota.admin.unit_quotas import in_order
from kclient_quota.admin.units import UNITS, QuotaUnit, changes, configured, sources_of, to_write
from kclient_quota.quota.entity import DEFAULT, ClientQuotaEntity
from tests.property.examples import examples

KEYS = ("producer_byte_rate", "consumer_byte_rate", "request_percentage")
QUOTAS = [QuotaUnit(key, unit) for key in KEYS for unit in UNITS[key]]
CAPACITY = dict.fromkeys(KEYS, 1e6)

names = st.none() | st.just(DEFAULT) | st.sampled_from(["a", "b"]) | st.text(min_size=1, max_size=8)
entities = st.tuples(names, names).filter(lambda pair: pair != (None, None))
values = st.dictionaries(st.sampled_from(QUOTAS), st.integers(1, 10**9).map(float), min_size=1, max_size=4)
clusters = st.dictionaries(
    entities.map(lambda pair: ClientQuotaEntity.of(user=pair[0], client_id=pair[1])), values, max_size=6
)


def as_file(asked, unwanted=frozenset()):
    entries = (FileEntry(entity, quotas, unwanted - set(quotas), 1) for entity, quotas in asked.items())
    return QuotaFile(tuple(entries), CAPACITY)


@settings(max_examples=examples(50))
@given(clusters, clusters, st.frozensets(st.sampled_from(QUOTAS), max_size=2))
def test_applying_twice_is_applying_once_and_the_rest_stays(asked, wanted, unwanted):
    file = as_file(wanted, unwanted)
    after = asked_after(asked, file)
    assert asked_after(after, file) == after
    for entity, quotas in wanted.items():
        assert after[entity].items() >= quotas.items()
        assert not set(after[entity]) & (unwanted - set(quotas))
    for entity, quotas in asked.items():
        managed = set(wanted.get(entity, {})) | (unwanted if entity in wanted else set())
        rest = {quota: value for quota, value in quotas.items() if quota not in managed}
        assert after.get(entity, {}).items() >= rest.items()
    assert asked_after(asked, file, prune=True) == wanted


@settings(max_examples=examples(50))
@given(clusters, clusters, st.integers(1, 5))
def test_a_plan_carried_out_leaves_nothing_to_do(asked, wanted, brokers):
    written = to_write(asked, CAPACITY, brokers)
    file = as_file(wanted)
    after = asked_after(asked, file)
    target = to_write(after, CAPACITY, brokers)
    carried_out = {entity: dict(quotas) for entity, quotas in written.items()}
    for entity, ops in changes(written, target).items():
        for key, value in ops.items():
            if value is None:
                del carried_out[entity][key]
            else:
                carried_out.setdefault(entity, {})[key] = value
    assert {entity: quotas for entity, quotas in carried_out.items() if quotas} == target
    sources = sources_of(after, target, CAPACITY)
    again = configured(sources, target)
    plan = make_plan(file, again, asked_after(again, file), target, to_write(again, CAPACITY, brokers))
    assert (plan.changes, plan.effective) == ((), ())


@given(clusters)
def test_what_is_exported_reads_back(asked):
    text = format_quota_file(asked, CAPACITY, in_order)
    assert asked_after({}, parse_quota_file(text, "exported")) == asked


@given(clusters)
def test_no_two_entities_print_alike(asked):
    assert len({entity_text(entity) for entity in asked}) == len(asked)
