"""`kclient-quota doctor` says the same of the embedded broker and of Apache Kafka."""

import json

import pytest

from kclient_quota import ClientQuotaAlteration, ClientQuotaAlterationOp, ClientQuotaEntity, QuotaAdmin
from kclient_quota.admin.capacity import largest_batch
from kclient_quota.cli.main import main
from tests.contract.administered import eventually

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def findings(cluster, capsys):
    def ask(*words):
        status = main(["doctor", "--bootstrap-server", cluster.bootstrap_servers, "--json", *words])
        rows = json.loads(capsys.readouterr().out)
        return status, {topic: [row for row in rows if row["topic"] == topic] for topic in {r["topic"] for r in rows}}

    return ask


def test_versions_rights_clock_and_telemetry(findings):
    _, found = findings()
    assert found["versions"][0]["said"].startswith("Kafka 4.3 (metadata.version 30); here confluent-kafka ")
    assert found["rights"][0]["said"] == "quotas can be asked for: clients know theirs from the start"
    assert found["clock"][0]["level"] == "ok", found["clock"]
    assert found["clock"][0]["said"].startswith("the cluster's clock is within ")


def test_which_quota_and_what_it_means_for_a_topic(cluster, findings, unique):
    topic, client = unique("orders"), unique("shop")
    cluster.create_topic(topic, 2)
    with QuotaAdmin({"bootstrap.servers": cluster.bootstrap_servers}) as admin:
        entity = ClientQuotaEntity.of(client_id=client)
        ops = tuple(ClientQuotaAlterationOp(key, 20_000.0) for key in ("producer_byte_rate", "consumer_byte_rate"))
        admin.alter_client_quotas([ClientQuotaAlteration(entity, ops)])[entity].result()
        status, found = eventually(
            lambda: findings("--client-id", client, "--topic", topic), lambda got: len(got[1]["quota"]) == 2
        )
    assert status == 3
    assert found["quota"][0]["said"].endswith(f"=20000 per broker from {{client-id={client}}}")
    said = " ".join(row["said"] for topic in ("produce", "consume") for row in found[topic])
    assert "1 leading brokers give 20000 B/s in all" in said
    assert f"the largest batch that is ever delivered has {largest_batch(20_000.0)} B" in said
    assert "is never delivered under consumer_byte_rate=20000" in said
