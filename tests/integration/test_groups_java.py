"""Apache Kafka's own tools on the embedded broker: groups of both protocols, offsets, transactions, SASL."""

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from kclient_quota.broker import EmbeddedBroker

CONSOLE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
PRODUCER = "org.apache.kafka.tools.ProducerPerformance"
TRANSACTIONS = "org.apache.kafka.tools.TransactionsCommand"


@pytest.fixture
def broker():
    with EmbeddedBroker(topics={"t": 2}, users={"alice": "secret"}) as running:
        yield running


def consume(java, servers, count, *properties, group="g"):
    arguments = [part for each in properties for part in ("--command-property", each)]
    limits = ["--max-messages", str(count), "--timeout-ms", "30000"]
    return java(
        CONSOLE_CONSUMER, "--bootstrap-server", servers, "--topic", "t", "--group", group, "--from-beginning", *limits,
        *arguments,
    ).splitlines()  # fmt: skip


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_java_resumes_in_its_group(broker, java, protocol):
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for number in range(30):
        producer.produce("t", str(number), partition=number % 2)
    assert producer.flush(60) == 0
    values = []
    for _ in range(3):
        values += consume(java, broker.bootstrap_servers, 10, f"group.protocol={protocol}", "max.poll.records=10")
    assert sorted(map(int, values)) == list(range(30)), "every one of three consumers went on where the last left off"
    described = java(GROUPS, "--bootstrap-server", broker.bootstrap_servers, "--describe", "--group", "g")
    rows = [line.split() for line in described.splitlines() if line.startswith("g ")]
    assert sorted((row[2], row[3], row[4], row[5]) for row in rows) == [("0", "15", "15", "0"), ("1", "15", "15", "0")]
    java(
        GROUPS, "--bootstrap-server", broker.bootstrap_servers, "--reset-offsets", "--group", "g", "--topic", "t:0",
        "--to-earliest", "--execute",
    )  # fmt: skip
    group = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "g"})
    assert [p.offset for p in group.committed([TopicPartition("t", 0), TopicPartition("t", 1)], 60)] == [0, 15]
    group.close()
    listed = java(GROUPS, "--bootstrap-server", broker.bootstrap_servers, "--list", "--state")
    assert ["g", "Empty"] in [line.split() for line in listed.splitlines()]
    java(GROUPS, "--bootstrap-server", broker.bootstrap_servers, "--delete", "--group", "g")
    assert java(GROUPS, "--bootstrap-server", broker.bootstrap_servers, "--list").strip() == ""


def test_java_writes_in_transactions(broker, java):
    servers = broker.bootstrap_servers
    open_one = Producer(
        {"bootstrap.servers": servers, "transactional.id": "x", "transaction.timeout.ms": 600_000, "log_level": 0}
    )
    open_one.init_transactions(60)
    open_one.begin_transaction()
    open_one.produce("t", b"aborted", partition=0)
    assert open_one.flush(60) == 0
    listed = java(TRANSACTIONS, "--bootstrap-server", servers, "list")
    assert [line.split()[3] for line in listed.splitlines() if line.startswith("x")] == ["Ongoing"]
    described = java(TRANSACTIONS, "--bootstrap-server", servers, "describe", "--transactional-id", "x")
    assert "t-0" in described
    open_one.abort_transaction(60)
    size = ["--num-records", "500", "--record-size", "20", "--throughput", "1000", "--transaction-duration-ms", "100"]
    printed = java(PRODUCER, "--topic", "t", *size, "--producer-props", f"bootstrap.servers={servers}")
    assert "500 records sent" in printed
    values = consume(java, servers, 500, "isolation.level=read_committed")
    assert [len(value) for value in values] == [20] * 500, "without the aborted record"


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_java_authenticates(broker, java, mechanism, tmp_path):
    module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
    jaas = f'org.apache.kafka.common.security.{module} required username="alice" password="secret";'
    properties = [
        f"bootstrap.servers={broker.sasl_bootstrap_servers}",
        "security.protocol=SASL_PLAINTEXT",
        f"sasl.mechanism={mechanism}",
        f"sasl.jaas.config={jaas}",
        f"client.id={mechanism}",
    ]
    config = tmp_path / "client.properties"
    config.write_text("\n".join(properties))
    size = ["--num-records", "10", "--record-size", "20", "--throughput", "-1"]
    assert "10 records sent" in java(PRODUCER, "--topic", "t", *size, "--command-config", str(config))
    assert {s.principal for s in broker.requests if s.client_id == mechanism and s.api_key == 0} == {"alice"}
