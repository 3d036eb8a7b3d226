"""`kclient-quota doctor` on the embedded broker: what it finds is what the configuration would meet."""

import json

import pytest

from kclient_quota.broker import EmbeddedBroker
from kclient_quota.cli.main import main
from kclient_quota.wire.error_codes import ErrorCode
from kclient_quota.wire.messages import DescribeClientQuotasResponse

DESCRIBE_QUOTAS = 48


@pytest.fixture
def cluster():
    with EmbeddedBroker(brokers=2, topics={"orders": 4}) as running:
        yield running


@pytest.fixture
def doctor(cluster, capsys):
    def run(*words, status=0):
        got = main(["doctor", "--bootstrap-server", cluster.bootstrap_servers, "--json", *words])
        out, err = capsys.readouterr()
        assert got == status, out + err
        return [(each["level"], each["topic"], each["said"], each["remedy"]) for each in json.loads(out)]

    return run


def said(findings, topic, level=None):
    return " ".join(
        f"{words} {remedy}" for have, about, words, remedy in findings if about == topic and level in {None, have}
    )


def test_without_quotas_there_is_nothing_to_change(doctor):
    findings = doctor("--topic", "orders")
    assert said(findings, "quota", "ok").strip() == "no quota applies to this client"
    assert "2 brokers" in said(findings, "cluster")
    assert "nothing is subscribed to" in said(findings, "telemetry", "note")


def test_which_quota_applies_from_where_and_what_it_comes_to(doctor, cluster):
    cluster.set_quota(default_user=True, producer_byte_rate=9_000_000)
    cluster.set_quota(client_id="shop", producer_byte_rate=20_000)
    cluster.set_client_metrics("all", interval_ms=1_000)
    findings = doctor("--client-id", "shop", "--topic", "orders")
    assert "producer_byte_rate=9000000 per broker from {user=<default>}, over 20000 of {client-id=shop}" in said(
        findings, "quota"
    )
    cluster.set_quota(default_user=True, producer_byte_rate=None)
    findings = doctor("--client-id", "shop", "--topic", "orders", status=3)
    assert "2 leading brokers give 40000 B/s in all" in said(findings, "produce", "ok")
    changes = said(findings, "produce", "change")
    assert "takes 26,844 s at this quota, longer than message.timeout.ms=300000" in changes
    assert "batch.size=1000000 is more than 220000 B" in changes
    assert "subscriptions: all every 1000 ms" in said(findings, "telemetry", "ok")
    good = ["queue.buffering.max.kbytes=1000", "batch.size=16384", "linger.ms=100"]
    findings = doctor("--client-id", "shop", "--topic", "orders", *(f"--set={each}" for each in good))
    assert said(findings, "produce", "change") == said(findings, "produce", "note") == ""


def test_what_consumers_never_get(doctor, cluster):
    cluster.set_quota(user="alice", consumer_byte_rate=20_000)
    findings = doctor("--user", "alice", "--topic", "orders", "--set=max.poll.interval.ms=10000", status=3)
    changes = said(findings, "consume", "change")
    assert "is never delivered under consumer_byte_rate=20000" in changes
    assert "use kclient_quota.Consumer" in changes
    assert "max.poll.interval.ms=10000 is shorter than two windows" in changes


def test_who_may_not_ask_is_told_what_to_grant(doctor, cluster):
    def deny(_seen):
        return DescribeClientQuotasResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, entries=None)

    cluster.control(DESCRIBE_QUOTAS, deny, times=None)
    findings = doctor(status=3)
    assert "grant DESCRIBE_CONFIGS on the cluster" in said(findings, "rights", "change")


def test_text_wrong_options_and_no_cluster(cluster, capsys):
    server = ["doctor", "--bootstrap-server", cluster.bootstrap_servers]
    assert main([*server, "--topic", "none"]) == 3
    out = capsys.readouterr().out
    assert "CHANGE  topic: topic none cannot be described: UNKNOWN_TOPIC_OR_PARTITION" in out
    assert out.endswith("\n1 to change\n")
    assert main([*server, "--set", "linger.ms"]) == 1
    assert "write it as KEY=VALUE" in capsys.readouterr().err
    assert main(["doctor", "--bootstrap-server", "127.0.0.1:1", "--timeout", "1"]) == 1
    assert "127.0.0.1:1" in capsys.readouterr().err
