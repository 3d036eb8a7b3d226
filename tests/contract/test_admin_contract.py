"""Quota administration on the embedded broker and on Apache Kafka, over plain connections, SASL and TLS.

Cases 107 to 110 are those of Kafka's ClientQuotasRequestTest and ClientQuotaControlManagerTest.
"""

import pytest

from kclient_quota.admin.model import (
    ClientQuotaAlteration,
    ClientQuotaAlterationOp,
    ClientQuotaFilter,
    ClientQuotaFilterComponent,
)
from kclient_quota.admin.quotas import QuotaAdmin
from kclient_quota.broker import EmbeddedBroker
from kclient_quota.cli import quotas
from kclient_quota.errors import ClusterError
from kclient_quota.quota.entity import CLIENT_ID, DEFAULT, IP, USER, ClientQuotaEntity
from tests.certificates import self_signed
from tests.contract.administered import apache, eventually

of = ClientQuotaEntity.of
exact = ClientQuotaFilterComponent.of_entity
any_of = ClientQuotaFilterComponent.of_entity_type
pytestmark = pytest.mark.timeout(120)

USERS = {"alice": "a", "admin": "b"}


@pytest.fixture(scope="module")
def ca(tmp_path_factory):
    certificate, key = self_signed()
    folder = tmp_path_factory.mktemp("tls")
    (folder / "broker.pem").write_bytes(key + certificate)
    (folder / "ca.pem").write_bytes(certificate)
    return folder


@pytest.fixture(scope="module", params=["embedded", "apache-kafka"])
def cluster(request, ca):
    """Two brokers of this module's own, since its filters count everything there is."""
    options = {"brokers": 2, "topics": {"orders": 4}, "users": USERS, "tls_pem": ca / "broker.pem"}
    with (EmbeddedBroker if request.param == "embedded" else apache)(**options) as running:
        yield running


@pytest.fixture
def admin(cluster):
    with QuotaAdmin({"bootstrap.servers": cluster.bootstrap_servers}) as made:
        yield made
        entries = eventually(lambda: made.describe_client_quotas().result(60), lambda found: True)
        alter(made, {entity: dict.fromkeys(values) for entity, values in entries.items()})
        eventually(lambda: made.describe_client_quotas().result(60), lambda found: not found)


def alter(admin, values, **options):
    alterations = [
        ClientQuotaAlteration(entity, tuple(ClientQuotaAlterationOp(*op) for op in ops.items()))
        for entity, ops in values.items()
        if ops
    ]
    return admin.alter_client_quotas(alterations, **options).all().result(60)


def described(admin, wanted, entries=None):
    return eventually(lambda: admin.describe_client_quotas(entries).result(60), lambda found: found == wanted)


ENTITIES = {
    of(user="user-1", client_id="client-id-1"): 50.5,
    of(user="user-2", client_id="client-id-1"): 51.51,
    of(user="user-3", client_id="client-id-2"): 52.52,
    of(user=DEFAULT, client_id="client-id-1"): 53.53,
    of(user="user-1", client_id=DEFAULT): 54.54,
    of(user="user-3", client_id=DEFAULT): 55.55,
    of(user="user-1"): 56.56,
    of(user="user-2"): 57.57,
    of(user="user-3"): 58.58,
    of(user=DEFAULT): 59.59,
    of(client_id="client-id-2"): 60.6,
}


def test_107_filters(admin):
    values = {entity: {"request_percentage": value} for entity, value in ENTITIES.items()}
    values |= {of(ip=ip): {"connection_creation_rate": rate} for ip, rate in (("1.2.3.4", 10.0), ("2.3.4.5", 20.0))}
    alter(admin, values)
    described(admin, values)
    counts = [
        ([exact(USER, "user-1")], False, 3),
        ([exact(USER, "unknown")], False, 0),
        ([exact(CLIENT_ID, "client-id-2")], False, 2),
        ([exact(USER, DEFAULT)], False, 2),
        ([exact(USER, "user-2")], True, 1),
        ([exact(CLIENT_ID, "client-id-1")], True, 0),
        ([any_of(USER)], True, 4),
        ([any_of(USER)], False, 10),
        ([any_of(CLIENT_ID)], True, 1),
        ([any_of(CLIENT_ID)], False, 7),
        ([any_of(IP)], False, 2),
        ([], False, 13),
        ([], True, 0),
        ([ClientQuotaFilterComponent.of_prefix(USER, "user-")], True, 3),
    ]
    for components, strict, count in counts:
        found = admin.describe_client_quotas(ClientQuotaFilter(tuple(components), strict)).result(60)
        assert len(found) == count, components


def test_108_alterations(admin):
    entity = of(user="user", client_id="client-id")
    steps = [
        ({"producer_byte_rate": 10000.0, "consumer_byte_rate": 20000.0}, None),
        ({"producer_byte_rate": 15000.0}, {"producer_byte_rate": 15000.0, "consumer_byte_rate": 20000.0}),
        ({"producer_byte_rate": None}, {"consumer_byte_rate": 20000.0}),
        ({"request_percentage": None}, {"consumer_byte_rate": 20000.0}),
        ({"producer_byte_rate": 5000.0}, {"producer_byte_rate": 5000.0, "consumer_byte_rate": 20000.0}),
        (
            {"producer_byte_rate": 20000.0, "consumer_byte_rate": None, "request_percentage": 12.3},
            {"producer_byte_rate": 20000.0, "request_percentage": 12.3},
        ),
    ]
    for ops, after in steps:
        alter(admin, {entity: ops})
        described(admin, {entity: after or ops})
    alter(admin, {entity: {"producer_byte_rate": 1.0}}, validate_only=True)
    assert admin.describe_client_quotas().result(60)[entity]["producer_byte_rate"] == 20000.0


@pytest.mark.parametrize(
    ("entity", "ops", "words"),
    [
        (of(user=""), {"producer_byte_rate": 1.0}, "Empty user not supported"),
        (of(client_id=""), {"producer_byte_rate": 1.0}, "Empty client-id not supported"),
        (ClientQuotaEntity({"": "x"}), {"producer_byte_rate": 1.0}, "Unhandled client quota entity type: "),
        (ClientQuotaEntity({}), {"producer_byte_rate": 1.0}, "Invalid empty client quota entity"),
        (of(user="u"), {"bad": 1.0}, "Invalid configuration key bad"),
        (of(user="u"), {"producer_byte_rate": 10000.5}, "cannot be a fractional value"),
        (of(user="u"), {"producer_byte_rate": 0.0}, "must be greater than 0"),
        (of(user="u"), {"producer_byte_rate": 1e19}, "is too large for a LONG"),
        (of(ip="1.2.3.4"), {"connection_creation_rate": 1e10}, "is too large for an INT"),
        (of(user="u", ip="1.2.3.4"), {"producer_byte_rate": 1.0}, "Invalid quota entity combination"),
    ],
)
def test_109_what_is_refused(admin, entity, ops, words):
    with pytest.raises(ClusterError, match=words) as caught:
        alter(admin, {entity: ops})
    assert caught.value.error_code == 42


def test_the_largest_long_is_a_quota_as_those_who_want_no_limit_write_it(admin):
    no_limit = {of(user="u"): {"producer_byte_rate": float(2**63 - 1), "consumer_byte_rate": float(2**63 - 1)}}
    alter(admin, no_limit)
    described(admin, no_limit)


def test_109_a_type_that_nobody_knows(admin):
    odd = ClientQuotaFilter.contains([any_of("other")])
    with pytest.raises(ClusterError, match="no entity type other") as caught:
        admin.describe_client_quotas(odd).result(60)
    assert caught.value.error_code == 35


def test_110_addresses(admin):
    address = {of(ip="1.2.3.4"): {"connection_creation_rate": 100.0}}
    alter(admin, address)
    described(admin, address)
    both = {of(ip="1.2.3.4"): {"connection_creation_rate": 150.0}, of(ip=DEFAULT): {"connection_creation_rate": 200.0}}
    alter(admin, both)
    described(admin, both, ClientQuotaFilter.contains([any_of(IP)]))
    alter(admin, {of(ip=DEFAULT): {"connection_creation_rate": None}})
    described(admin, {of(ip="1.2.3.4"): {"connection_creation_rate": 150.0}})


def test_half_is_altered_and_it_is_said_which(admin):
    good, bad = of(user="good"), of(user="bad")
    with pytest.raises(ClusterError) as caught:
        alter(admin, {good: {"producer_byte_rate": 1.0}, bad: {"producer_byte_rate": -1.0}})
    assert "1 of 2 entities were altered ({user=good}); 1 were not" in str(caught.value)
    described(admin, {good: {"producer_byte_rate": 1.0}})


def test_names_may_hold_anything_and_the_default_is_no_name(admin):
    values = {
        of(user=name): {"producer_byte_rate": float(number)}
        for number, name in enumerate(["<default>", "CN=x,O=y", "ünï/cødé %+*~", DEFAULT], start=1)
    }
    alter(admin, values)
    described(admin, values)
    (found,) = admin.describe_effective_client_quotas([of(user="somebody", client_id="c")]).values()
    assert found.result(60)[0].decided_by.entity == of(user=DEFAULT)


def test_ten_thousand_entities(admin):
    values = {of(user=f"u{n}", client_id="c"): {"producer_byte_rate": 1000.0 + n} for n in range(10_000)}
    alter(admin, values)
    described(admin, values)


def test_client_metrics_subscriptions(admin):
    values = {"interval.ms": "60000", "metrics": "org.apache.kafka.consumer.", "match": "client_id=app-.*"}
    admin.alter_client_metrics_subscription("BASIC", values).result(60)
    assert "BASIC" in eventually(lambda: admin.list_client_metrics_subscriptions().result(60), bool)
    found = admin.describe_client_metrics_subscription("BASIC").result(60)
    assert (found.interval_ms, found.match) == (60_000, ("client_id=app-.*",))
    assert found.metrics == ("org.apache.kafka.consumer.",)
    with pytest.raises(ClusterError):
        admin.alter_client_metrics_subscription("BASIC", {"interval.ms": "99"}).result(60)
    admin.delete_client_metrics_subscription("BASIC").result(60)
    eventually(lambda: admin.list_client_metrics_subscriptions().result(60), lambda names: "BASIC" not in names)


FILE = """
version: 1
capacity: {consumer_byte_rate: 9000}
quotas:
  - defaults: [user]
    set: {producer_byte_rate: 100000, consumer_byte_rate:shares: 1}
  - names: {user: alice, client-id: app}
    set: {producer_byte_rate:bps: 50000, consumer_byte_rate:shares: 2}
"""


def test_quotas_as_code(cluster, admin, tmp_path, capsys):
    def run(*arguments):
        status = quotas.main([*map(str, arguments), "--bootstrap-server", cluster.bootstrap_servers])
        captured = capsys.readouterr()
        return status, captured.out + captured.err

    file = tmp_path / "quotas.yaml"
    file.write_text(FILE)
    status, said = run("apply", file)
    assert status == 0, said
    assert "4 to add, 0 to change, 0 to remove" in said
    assert run("diff", file) == (0, "no differences\n")
    assert run("--list") == (
        0,
        (
            "{user=alice, client-id=app}\n"
            "consumer_byte_rate:broker_bps=6000\nconsumer_byte_rate:shares=2\n"
            "producer_byte_rate:bps=50000\nproducer_byte_rate:broker_bps=25000\n\n"
            "{user=<default>}\n"
            "consumer_byte_rate:broker_bps=3000\nconsumer_byte_rate:shares=1\n"
            "producer_byte_rate:broker_bps=100000\n"
        ),
    )
    assert run("--describe", "--names=user=alice,client-id=app", "--include-overrides") == (
        0,
        (
            "consumer_byte_rate:shares=2 {user=alice, client-id=app}\n"
            "*consumer_byte_rate:shares=1 {user=<default>}\n"
            "producer_byte_rate:bps=50000 {user=alice, client-id=app}\n"
            "producer_byte_rate:broker_bps=100000 {user=<default>}\n"
        ),
    )
    _, exported = run("export")
    (tmp_path / "exported.yaml").write_text(exported)
    assert run("diff", tmp_path / "exported.yaml") == (0, "no differences\n")
    assert run("undo", tmp_path)[1].endswith("2 entities altered\n")
    assert run("export") == (0, "version: 1\nquotas: []\n")


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_sasl_from_a_file_as_kafkas_tools_take_it(cluster, admin, tmp_path, capsys, mechanism):
    module = {"PLAIN": "plain.PlainLoginModule"}.get(mechanism, "scram.ScramLoginModule")
    config = tmp_path / "admin.properties"
    config.write_text(
        f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={mechanism}\n"
        f"sasl.jaas.config=org.apache.kafka.common.security.{module} required "
        'username="admin" password="b";\n'
    )
    server = ["--bootstrap-server", cluster.sasl_bootstrap_servers, "--command-config", str(config)]
    assert quotas.main(["--alter", "--names=user=u", "--add=producer_byte_rate=5", *server]) == 0
    described(admin, {of(user="u"): {"producer_byte_rate": 5.0}})
    config.write_text(config.read_text().replace('"b"', '"wrong"'))
    assert quotas.main(["--list", *server]) == 1
    assert "SASL_AUTHENTICATION_FAILED (58)" in capsys.readouterr().err


def test_tls(cluster, admin, ca, tmp_path, capsys):
    config = tmp_path / "admin.properties"
    config.write_text(f"security.protocol=SSL\nssl.truststore.type=PEM\nssl.truststore.location={ca / 'ca.pem'}\n")
    server = ["--bootstrap-server", cluster.tls_bootstrap_servers, "--command-config", str(config)]
    assert quotas.main(["--alter", "--names=user=tls", "--add=producer_byte_rate=5", *server]) == 0
    described(admin, {of(user="tls"): {"producer_byte_rate": 5.0}})
    config.write_text("security.protocol=SSL\n")
    assert quotas.main(["--list", "--timeout=5", *server]) == 1
    assert "certificate" in capsys.readouterr().err


def test_who_may_not_is_told_what_is_needed(ca, tmp_path, capsys):
    file = tmp_path / "quotas.yaml"
    file.write_text(FILE)
    with apache(users=USERS) as guarded, QuotaAdmin({"bootstrap.servers": guarded.bootstrap_servers}) as admin:
        config = tmp_path / "alice.properties"
        config.write_text(
            "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.username=alice\nsasl.password=a\n"
        )
        server = ["--bootstrap-server", guarded.sasl_bootstrap_servers, "--command-config", str(config)]
        local = [*server, f"--units-store={tmp_path / 'units.json'}"]
        assert quotas.main(["--alter", "--names=user=u", "--add=producer_byte_rate=5", *local]) == 1
        said = capsys.readouterr().err
        assert "0 of 1 entities were altered" in said
        assert "CLUSTER_AUTHORIZATION_FAILED (31)" in said
        assert "ALTER_CONFIGS on the cluster is needed" in said
        for command in (["--list"], ["apply", str(file)], ["--describe", "--names=user=u"]):
            assert quotas.main([*command, *local]) == 1
            assert "DESCRIBE_CONFIGS on the cluster is needed" in capsys.readouterr().err
        assert quotas.main(["--list", *server]) == 1
        assert "topic _kclient_quota_units" in capsys.readouterr().err
        assert admin.describe_client_quotas().result(60) == {}


def test_apache_kafka_takes_no_requests_per_second(capsys):
    with apache() as cluster:
        server = ["--bootstrap-server", cluster.bootstrap_servers]
        assert quotas.main(["--alter", "--names=user=u", "--add=request_rate=5", *server]) == 1
        assert "only the embedded broker and the gateway take requests per second" in capsys.readouterr().err


def test_a_controller_that_goes_away_and_comes_back():
    with apache(brokers=2) as cluster, QuotaAdmin({"bootstrap.servers": cluster.bootstrap_servers}) as admin:
        alter(admin, {of(user="u"): {"producer_byte_rate": 1.0}})
        cluster.stop_broker(1)
        with pytest.raises(ClusterError):
            alter(admin, {of(user="u"): {"producer_byte_rate": 2.0}}, request_timeout=3)
        cluster.start_broker(1)
        alter(admin, {of(user="u"): {"producer_byte_rate": 3.0}}, request_timeout=60)
        described(admin, {of(user="u"): {"producer_byte_rate": 3.0}})
