"""Spark's own connector: where it can be had, what is said where not, and a connection in Java's words."""

import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from kclient_quota.cli.main import main
from kclient_quota.errors import ClusterError, ConfigError
from kclient_quota.spark.kafka.jvm_source import connector_settings, java_options, read_kafka
from kclient_quota.spark.pipeline import Plan, run

POM = "/org/apache/spark/{0}_2.13/9.9.9/{0}_2.13-9.9.9.pom"
CONNECTOR, TOKENS = POM.format("spark-sql-kafka-0-10"), POM.format("spark-token-provider-kafka-0-10")


@pytest.fixture
def repository():
    """A Maven repository: path -> status; what is not named is 404."""
    statuses = {}

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self):
            self.send_response(statuses.get(self.path, 404))
            self.end_headers()

        def log_message(self, *arguments):
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", statuses
        finally:
            server.shutdown()
            thread.join()


def test_it_is_asked_for_when_everything_it_needs_is_there(repository):
    url, statuses = repository
    statuses.update({CONNECTOR: 200, TOKENS: 200})
    assert connector_settings(version="9.9.9", repository=url) == {
        "spark.jars.packages": "org.apache.spark:spark-sql-kafka-0-10_2.13:9.9.9",
        "spark.jars.repositories": url,
    }


@pytest.mark.parametrize(
    ("there", "missing"),
    [({}, "spark-sql-kafka-0-10_2.13:9.9.9"), ({CONNECTOR: 200}, "spark-token-provider-kafka-0-10_2.13:9.9.9")],
)
def test_what_is_not_there_is_named_with_the_way_out(repository, there, missing):
    url, statuses = repository
    statuses.update(there)
    with pytest.raises(
        ConfigError, match=f"has no org.apache.spark:{missing}; give a directory with its jars, or leave"
    ):
        connector_settings(version="9.9.9", repository=url)


def test_a_repository_that_does_not_answer(repository):
    url, statuses = repository
    statuses[CONNECTOR] = 503
    with pytest.raises(ClusterError, match="503"):
        connector_settings(version="9.9.9", repository=url)
    with pytest.raises(ClusterError, match="give a directory with the jars"):
        connector_settings(version="9.9.9", repository="http://127.0.0.1:1")


def test_jars_of_a_directory(tmp_path):
    with pytest.raises(ConfigError, match="no jars there"):
        connector_settings(tmp_path)
    for name in ("b.jar", "a.jar", "notes.txt"):
        (tmp_path / name).touch()
    assert connector_settings(tmp_path) == {"spark.jars": f"{tmp_path}/a.jar,{tmp_path}/b.jar"}


def test_a_connection_in_javas_words():
    given = {
        "bootstrap.servers": "b:1",
        "quota.backoff": "off",
        "sasl.mechanisms": "SCRAM-SHA-512",
        "sasl.username": "u",
        "sasl.password": 'p"w\\',
        "ssl.ca.location": "/ca.pem",
    }
    scram = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="u" password="p\\"w\\\\";'
    assert java_options(given) == {
        "bootstrap.servers": "b:1",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": scram,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": "/ca.pem",
    }
    with pytest.raises(ConfigError, match=r"sasl\.mechanisms OAUTHBEARER"):
        java_options({"sasl.mechanisms": "OAUTHBEARER", "sasl.username": "u"})


def test_a_session_without_it_says_so(spark, tmp_path):
    client = {"bootstrap.servers": "127.0.0.1:1"}
    with pytest.raises(ConfigError, match=r"no Kafka connector of the JVM: make it with session\(settings=connector_s"):
        run(spark, Plan("usage", "t", str(tmp_path / "out"), client=client, connector="jvm"))
    with pytest.raises(ConfigError, match="connector scala: write one of python, jvm"):
        Plan("usage", "t", "out", client=client, connector="scala")


def test_options_that_only_our_source_has(spark):
    with pytest.raises(ConfigError, match="no option maxBytesPerTrigger"):
        read_kafka(spark, {"kafka.bootstrap.servers": "b:1", "subscribe": "t", "maxBytesPerTrigger": "quota"})


def test_the_command_says_it_before_a_jvm_is_started(tmp_path, capsys):
    given = [
        "pipeline",
        "usage",
        "--topic",
        "t",
        "--bootstrap-server",
        "127.0.0.1:1",
        "--output",
        str(tmp_path / "out"),
    ]
    assert main([*given, "--connector", "jvm", "--connector-jars", str(tmp_path)]) == 2
    assert "no jars there; put Spark's Kafka connector" in capsys.readouterr().err
