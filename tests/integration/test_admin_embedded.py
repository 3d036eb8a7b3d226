"""`QuotaAdmin` and its twin on the embedded broker, where requests can be seen, answered and broken."""

import multiprocessing
import os

import pytest

from kclient_quota.admin.aio import AIOQuotaAdmin
from kclient_quota.admin.model import (
    ClientQuotaAlteration,
    ClientQuotaAlterationOp,
    ClientQuotaFilter,
    ClientQuotaFilterComponent,
)
from kclient_quota.admin.quotas import QuotaAdmin
from kclient_quota.admin.results import AlterationUnknownError
from kclient_quota.broker import EmbeddedBroker
from kclient_quota.broker.request.controls import HANG_UP
from kclient_quota.errors import ClusterError, ConfigError
from kclient_quota.quota.entity import DEFAULT, ClientQuotaEntity
from kclient_quota.wire.messages import AlterClientQuotasResponse, ApiVersionsResponse, MetadataRequest

of = ClientQuotaEntity.of
DESCRIBE, ALTER = 48, 49


@pytest.fixture
def broker():
    with EmbeddedBroker(brokers=2) as running:
        yield running


@pytest.fixture
def admin(broker):
    with QuotaAdmin({"bootstrap.servers": broker.bootstrap_servers}) as made:
        yield made


def setting(entity, **values):
    return ClientQuotaAlteration(entity, tuple(ClientQuotaAlterationOp(*item) for item in values.items()))


def test_ten_thousand_alterations_in_one_call(admin, broker):
    entities = [of(user=f"user-{n}") for n in range(10_000)]
    admin.alter_client_quotas(
        [setting(entity, producer_byte_rate=1000.0 + n) for n, entity in enumerate(entities)]
    ).all().result(60)
    found = admin.describe_client_quotas().result(60)
    assert len(found) == 10_000
    assert found[entities[7777]] == {"producer_byte_rate": 8777.0}
    assert sum(1 for seen in broker.requests if seen.api_key == ALTER) == 5
    some = ClientQuotaFilter.contains([ClientQuotaFilterComponent.of_prefix("user", "user-77")])
    assert len(admin.describe_client_quotas(some).result(60)) == 111


def test_a_few_are_resolved_without_fetching_the_many(admin, broker):
    admin.alter_client_quotas(
        [
            setting(of(user=DEFAULT), producer_byte_rate=10.0, consumer_byte_rate=5.0),
            setting(of(user="u", client_id="c"), producer_byte_rate=20.0),
            *(setting(of(user=f"other-{n}"), producer_byte_rate=1.0) for n in range(500)),
        ]
    ).all().result(60)
    before = sum(seen.response_bytes for seen in broker.requests)
    wanted = of(user="u", client_id="c")
    (found,) = admin.describe_effective_client_quotas([wanted], include_overrides=True).values()
    consumer, producer = found.result(60)
    assert sum(seen.response_bytes for seen in broker.requests) - before < 1000
    assert (producer.value, [entry.value for entry in producer.overrides]) == (20.0, [10.0])
    assert (consumer.value, consumer.decided_by.entity) == (5.0, of(user=DEFAULT))
    assert admin.index_client_quotas().result(60).describe(wanted)[1].value == 20.0
    many = [of(user=f"other-{n}", client_id="x") for n in range(100)]
    results = admin.describe_effective_client_quotas([*many, wanted, of(ip="1.2.3.4")])
    assert [quota.value for quota in results[many[5]].result(60)] == [5.0, 1.0]
    assert results[wanted].result(60)[1].value == 20.0
    with pytest.raises(ConfigError, match="effective quotas are those of"):
        results[of(ip="1.2.3.4")].result(60)


def test_an_answer_of_89_is_repeated_after_its_time(admin, broker):
    def refuse(seen):
        entry = AlterClientQuotasResponse.EntryData(
            error_code=89,
            error_message=None,
            entity=[AlterClientQuotasResponse.EntityData(entity_type="user", entity_name="u")],
        )
        return AlterClientQuotasResponse(throttle_time_ms=150, entries=[entry])

    broker.control(ALTER, refuse)
    admin.alter_client_quotas([setting(of(user="u"), producer_byte_rate=1.0)]).all().result(60)
    first, second = [seen.at_ms for seen in broker.requests if seen.api_key == ALTER]
    assert second - first >= 150
    assert admin.describe_client_quotas().result(60) == {of(user="u"): {"producer_byte_rate": 1.0}}


def test_a_connection_that_breaks_is_replaced_and_a_dead_cluster_is_told(admin, broker):
    broker.control(ALTER, lambda _: HANG_UP, times=3)
    admin.alter_client_quotas([setting(of(user="u"), producer_byte_rate=1.0)]).all().result(60)
    broker.close()
    error = (
        admin.alter_client_quotas([setting(of(user="u"), producer_byte_rate=2.0)], request_timeout=1)
        .all()
        .exception(30)
    )
    (reason,) = error.unknown.values()
    assert isinstance(reason, AlterationUnknownError)
    with pytest.raises(ClusterError):
        admin.describe_client_quotas(request_timeout=1).result(60)


def test_validate_only_alters_nothing_and_still_judges(admin):
    results = admin.alter_client_quotas(
        [setting(of(user="a"), producer_byte_rate=1.0), setting(of(user="b"), producer_byte_rate=-1.0)],
        validate_only=True,
    )
    assert results[of(user="a")].result(60) is None
    with pytest.raises(ClusterError, match="must be greater than 0"):
        results[of(user="b")].result(60)
    assert admin.describe_client_quotas().result(60) == {}


def test_an_entity_type_that_the_broker_does_not_know(admin):
    odd = ClientQuotaFilter.contains([ClientQuotaFilterComponent.of_entity_type("group")])
    with pytest.raises(ClusterError, match="no entity type group") as caught:
        admin.describe_client_quotas(odd).result(60)
    assert caught.value.error_code == 35
    with pytest.raises(ClusterError, match="Unhandled client quota entity type: group"):
        admin.alter_client_quotas([setting(ClientQuotaEntity({"group": "g"}), x=1.0)]).all().result(60)


def test_wrong_arguments(admin):
    twice = [setting(of(user="a"), producer_byte_rate=1.0)] * 2
    with pytest.raises(ConfigError, match="stands in them twice"):
        admin.alter_client_quotas(twice)
    with pytest.raises(ConfigError, match="request_timeout"):
        admin.describe_client_quotas(request_timeout=0)


def test_client_metrics_subscriptions(admin):
    assert admin.list_client_metrics_subscriptions().result(60) == []
    values = {"interval.ms": "60000", "metrics": "org.apache.kafka.consumer., a", "match": "client_id=app-.*"}
    admin.alter_client_metrics_subscription("BASIC", values).result(60)
    assert admin.list_client_metrics_subscriptions().result(60) == ["BASIC"]
    found = admin.describe_client_metrics_subscription("BASIC").result(60)
    assert (found.interval_ms, found.match, found.metrics) == (
        60_000,
        ("client_id=app-.*",),
        ("org.apache.kafka.consumer.", "a"),
    )
    admin.alter_client_metrics_subscription("BASIC", {"interval.ms": None}).result(60)
    assert admin.describe_client_metrics_subscription("BASIC").result(60).interval_ms == 300_000
    with pytest.raises(ClusterError):
        admin.alter_client_metrics_subscription("BASIC", {"interval.ms": "99"}).result(60)
    admin.delete_client_metrics_subscription("BASIC").result(60)
    assert admin.describe_client_metrics_subscription("BASIC").result(60) is None
    with pytest.raises(ConfigError, match="needs one"):
        admin.delete_client_metrics_subscription("").result(60)


async def test_the_asyncio_twin(broker):
    async with AIOQuotaAdmin({"bootstrap.servers": broker.bootstrap_servers}) as admin:
        good, bad = of(user="a"), of(user="b")
        results = await admin.alter_client_quotas(
            [setting(good, producer_byte_rate=1.0), setting(bad, producer_byte_rate=0.0)]
        )
        assert results[good] is None
        assert "must be greater than 0" in str(results[bad])
        assert await admin.describe_client_quotas() == {good: {"producer_byte_rate": 1.0}}
        effective = await admin.describe_effective_client_quotas([good])
        assert [quota.value for quota in effective[good]] == [1.0]
        await admin.alter_client_metrics_subscription("S", {"metrics": "*"})
        assert await admin.list_client_metrics_subscriptions() == ["S"]
        assert (await admin.describe_client_metrics_subscription("S")).metrics == ("*",)
        await admin.delete_client_metrics_subscription("S")


def test_brokers_that_do_not_know_the_api(broker):
    """Kafka before 2.6 has no client quotas in its protocol."""

    def without_quotas(_seen):
        keys = [ApiVersionsResponse.ApiVersion(api_key=key, min_version=0, max_version=1) for key in (3, 18, 36, 19)]
        return ApiVersionsResponse(api_keys=keys)

    broker.control(18, without_quotas, times=None)
    with QuotaAdmin({"bootstrap.servers": broker.bootstrap_servers}) as old:
        with pytest.raises(ClusterError, match="DescribeClientQuotas") as caught:
            old.describe_client_quotas().result(60)
        assert caught.value.error_code == 35
        error = old.alter_client_quotas([setting(of(user="u"), producer_byte_rate=1.0)]).all().exception(30)
        assert "0 of 1 entities were altered" in str(error)
        assert error.error_code == 35


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_forked_child_has_a_connection_and_a_thread_of_its_own(admin, broker):
    """Its parent's thread is not in it: what it asked for never came, whatever `request_timeout` was."""
    admin.alter_client_quotas([setting(of(user="a"), producer_byte_rate=1.0)]).all().result(60)
    reads, writes = os.pipe()

    def ask():
        admin.describe_client_quotas(request_timeout=30).result(60)
        admin.client.ask(MetadataRequest(topics=[]), timeout_ms=30_000)
        os.write(writes, b"told")

    def leave():
        with admin:
            pass

    for work in (ask, leave):
        child = multiprocessing.get_context("fork").Process(target=work)
        child.start()
        child.join(60)
        assert child.exitcode == 0
    assert os.read(reads, 10) == b"told"
    seen = len(broker.requests)
    assert admin.describe_client_quotas().result(60) == {of(user="a"): {"producer_byte_rate": 1.0}}
    assert [each.api_key for each in broker.requests[seen:]] == [DESCRIBE], "the parent's connection is whole"
    os.close(reads)
    os.close(writes)
