"""`kclient-quota doctor` on the embedded broker: what it finds is what the configuration would meet."""

import json
import random
import time

import pytest
from kclient_telemetry.receiver.endpoint import PrometheusEndpoint

from kclient_quota import Producer
from kclient_quota.broker import EmbeddedBroker
from kclient_quota.cli.main import main
from kclient_quota.operate.clocks import Skew
from kclient_quota.operate.doctor import examine, watch
from kclient_quota.operate.facts import Facts
from kclient_quota.operate.top import Row
from kclient_quota.wire.error_codes import ErrorCode
from kclient_quota.wire.messages import DescribeClientQuotasResponse, FetchResponse
from tests.closed_port import closed_port

DESCRIBE_QUOTAS, FETCH = 48, 1


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
    findings = doctor("--client-id", "shop", "--topic", "orders", "--plain", status=3)
    assert "2 leading brokers give 40000 B/s in all" in said(findings, "produce", "ok")
    assert "a full queue of 1073741824 B (queue.buffering.max.kbytes) takes 26,844 s" in said(findings, "produce", "ok")
    changes = said(findings, "produce", "change")
    assert "takes 26,844 s at this quota, longer than message.timeout.ms=300000" in changes
    assert "batch.size=1000000 is more than 220000 B" in changes
    assert "subscriptions: all every 1000 ms" in said(findings, "telemetry", "ok")
    good = ["queue.buffering.max.kbytes=1000", "batch.size=16384", "linger.ms=100"]
    findings = doctor("--client-id", "shop", "--topic", "orders", "--plain", *(f"--set={each}" for each in good))
    assert said(findings, "produce", "change") == said(findings, "produce", "note") == ""


def test_our_own_producer_has_nothing_to_change_at_its_defaults(doctor, cluster):
    cluster.set_quota(client_id="shop", producer_byte_rate=20_000)
    shop = ["--client-id", "shop", "--topic", "orders"]
    findings = doctor(*shop)
    assert "kclient_quota.Producer gives librdkafka only what brokers take" in said(findings, "produce", "ok")
    assert said(findings, "produce", "note") == ""
    assert "longer than message.timeout.ms" in said(
        doctor(*shop, "--set=quota.backoff=off", status=3), "produce", "change"
    )
    larger = said(doctor(*shop, "--set=batch.size=1000000", status=3), "produce", "change")
    assert "batch.size=1000000 is more than 220000 B" in larger
    assert "leave it out: it is fitted to the quota" in larger


def test_our_own_consumer_fits_its_fetches_to_the_quota(doctor, cluster):
    cluster.set_quota(client_id="shop", consumer_byte_rate=20_000)
    shop = ["--client-id", "shop"]
    assert said(doctor(*shop), "consume", "change") == ""
    assert "use kclient_quota.Consumer" in said(doctor(*shop, "--plain", status=3), "consume", "change")
    set_by_hand = said(doctor(*shop, "--set=max.partition.fetch.bytes=1048576", status=3), "consume", "change")
    assert "leave it out: it is fitted to the quota" in set_by_hand


def test_what_consumers_never_get(doctor, cluster):
    cluster.set_quota(user="alice", consumer_byte_rate=20_000)
    findings = doctor("--user", "alice", "--topic", "orders", "--plain", "--set=max.poll.interval.ms=10000", status=3)
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
    assert "-> check --topic;" in out
    assert out.endswith("\n1 to change\n")
    assert main([*server, "--set", "linger.ms"]) == 2
    assert main([*server, "--set", "quota.backoff=of"]) == 2
    assert "write it as KEY=VALUE" in capsys.readouterr().err
    assert main(["doctor", "--bootstrap-server", "127.0.0.1:1", "--timeout", "1"]) == 1
    assert "127.0.0.1:1" in capsys.readouterr().err


def fill(cluster, value, count=120, **conf):
    """A topic's partition 0, in batches of about fifty messages."""
    conf = {"bootstrap.servers": cluster.bootstrap_servers, "linger.ms": 500, "batch.num.messages": 50, **conf}
    with Producer(conf) as producer:
        for number in range(count):
            producer.produce("orders", value(number), partition=0)
        assert producer.flush(60) == 0


def order(number):
    return json.dumps({"order": number, "customer": f"customer-{number % 7}", "status": "accepted"} | ITEMS).encode()


ITEMS = {"lines": [{"sku": f"SKU-{number:05}", "quantity": 1} for number in range(8)]}


def test_what_compression_would_buy_is_measured_on_messages_of_the_topic(doctor, cluster):
    fill(cluster, order)
    requests = len([seen for seen in cluster.requests if seen.api_key == FETCH])
    words = said(doctor("--topic", "orders"), "worth", "note")
    assert "orders compress " in words
    assert "compression.type=zstd would send " in words
    assert "times the messages (measured on 100)" in words
    assert len([seen for seen in cluster.requests if seen.api_key == FETCH]) - requests <= 3, "a sample, no more"
    compressed = doctor("--topic", "orders", "--set=compression.type=zstd")
    assert "compression.type=" not in said(compressed, "worth"), "it has that already"


def test_what_does_not_compress_is_not_told_to(doctor, cluster):
    chance = random.Random(1)
    fill(cluster, lambda _number: chance.randbytes(500))
    assert "no setting buys much" in said(doctor("--topic", "orders"), "worth", "ok")


def test_a_batch_that_is_there_and_never_comes_is_named(doctor, cluster):
    fill(cluster, lambda number: b"%05d" % number * 1_000)
    cluster.set_quota(user="alice", consumer_byte_rate=2_000)
    changes = said(doctor("--user", "alice", "--topic", "orders", status=3), "consume", "change")
    assert "orders has a batch of " in changes
    assert "it is never delivered under this quota" in changes


def test_who_may_not_read_is_told_what_is_not_known(doctor, cluster):
    cluster.control(FETCH, lambda _seen: FetchResponse(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED), times=None)
    fill(cluster, order, 1)
    assert "orders cannot be read: TOPIC_AUTHORIZATION_FAILED" in said(doctor("--topic", "orders"), "worth", "note")


@pytest.mark.parametrize(
    ("ahead_ms", "level", "words"),
    [
        (-400, "ok", "within 405 ms"),
        (5_000, "note", "5.0 s ahead of"),
        (-3_600_000, "change", "3,600.0 s behind"),
    ],
)
def test_clocks_that_differ_matter_for_all_but_throttling(ahead_ms, level, words):
    (found,) = [each for each in examine(Facts(skew=Skew(ahead_ms, 5)), {}) if each.topic == "clock"]
    assert (found.level, words in found.said) == (level, True), found
    assert ("throttling does not mind" in found.said) == (level != "ok")


def test_the_clocks_of_one_machine_agree(doctor):
    assert "the cluster's clock is within " in said(doctor(), "clock", "ok")


def test_what_a_running_client_pushes_is_held_against_its_quota(cluster, capsys):
    endpoint = PrometheusEndpoint()
    with EmbeddedBroker(topics={"t": 1}, exporters=[endpoint]) as broker:
        broker.set_client_metrics("all", interval_ms=200)
        broker.set_quota(client_id="slow", producer_byte_rate=20_000)
        words = ["doctor", "--bootstrap-server", broker.bootstrap_servers, "--json", "--client-id", "slow"]
        live = ["--prometheus", f"http://127.0.0.1:{endpoint.port}/metrics", "--live", "0.5"]
        assert main([*words, *live]) in {0, 3}
        assert "nothing was pushed within 0.5 s" in capsys.readouterr().out
        with Producer({"bootstrap.servers": broker.bootstrap_servers, "client.id": "slow"}) as producer:
            end = time.monotonic() + 60
            while len(broker.pushes) < 8 and time.monotonic() < end:
                producer.produce("t", b"x" * 2_000)
                producer.poll(0)
            assert main([*words, *live]) in {0, 3}
        (found,) = [each for each in json.loads(capsys.readouterr().out) if each["topic"] == "live"]
        assert "of the 20000 B/s of {client-id=slow}" in found["said"]
    assert main([*words, "--live", "1"]) == 2
    assert "--from-topic NAME or --prometheus URL" in capsys.readouterr().err


def row(**values):
    return Row("c", "u", "producer", quota="{user=u}", **values)


@pytest.mark.parametrize(
    ("found", "level", "words"),
    [
        (row(limit=100.0, rate=50.0), "ok", "50% of the 100 B/s of {user=u}"),
        (row(limit=100.0, rate=95.0, throttle_avg_ms=20.0), "note", "it needs a larger quota"),
        (row(limit=100.0, rate=30.0, wait_ratio=0.5), "note", "who else shares it?"),
        (row(throttle_avg_ms=9_000.0, throttle_max_ms=45_000.0), "change", "longer than requests are waited for"),
        (row(lag=7.0, batch_fill=0.5), "ok", "7 records behind; batches 50% full"),
    ],
)
def test_what_pushes_tell(found, level, words):
    (finding,) = watch([found], 5)
    assert finding.level == level
    assert words in finding.said + finding.remedy


def test_what_is_pushed_cannot_be_seen_and_all_else_is_told(doctor):
    with closed_port() as port:
        findings = doctor("--prometheus", f"http://127.0.0.1:{port}/metrics", "--live", "0.1", status=3)
    assert "was not seen: --prometheus http://127.0.0.1:" in said(findings, "live", "change")
    assert "2 brokers" in said(findings, "cluster", "ok")
