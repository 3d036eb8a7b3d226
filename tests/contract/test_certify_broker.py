"""`kclient-quota certify broker`: Apache Kafka and the embedded broker pass every row; one that differs does not."""

import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from benchmarks.certify_brokers import VERSIONS, cluster
from kclient_quota.broker import EmbeddedBroker
from kclient_quota.certify.brokers.run import ALL, certify, select
from kclient_quota.certify.verdict import Grade
from kclient_quota.cli.main import main
from tests.required import require_apache_kafka

pytestmark = pytest.mark.timeout(240)


@pytest.mark.parametrize("name", VERSIONS)
def test_passes_every_row_and_leaves_nothing_behind(name: str) -> None:
    if name != "embedded":
        require_apache_kafka()
    with ExitStack() as stack:
        conf = {"bootstrap.servers": cluster(name, stack).bootstrap_servers}
        results = certify(conf, ALL, say=lambda _line: None)
        until = time.monotonic() + 60
        while (left := [line for line in _left(conf) if "certify" in line]) and time.monotonic() < until:
            time.sleep(0.1)  # brokers learn of a deletion a little later
    assert [(found.row.name, found.verdict) for found in results if found.verdict.grade is not Grade.PASS] == []
    assert left == []


def _left(conf: dict[str, str]) -> list[str]:
    from kclient_quota.clock import SYSTEM_CLOCK
    from kclient_quota.cluster.client import ClusterClient
    from kclient_quota.cluster.quotas import describe_client_quotas
    from kclient_quota.wire.messages import MetadataRequest

    with ClusterClient(conf, SYSTEM_CLOCK) as client:
        quotas = [str(entity) for entity, _ in describe_client_quotas(client)]
        return [*quotas, *(topic.name for topic in client.ask(MetadataRequest(topics=None)).topics)]


def test_a_broker_that_answers_with_data_fails_the_rows_of_empty_fetches() -> None:
    with EmbeddedBroker(manner="kafka-with-data") as other:
        results = certify({"bootstrap.servers": other.bootstrap_servers}, select(["fetch-"]), say=lambda _line: None)
    grades = {found.row.name: found.verdict.grade for found in results}
    assert grades["fetch-empty"] is Grade.FAIL
    assert grades["fetch-muted"] is Grade.PASS


def test_the_command_keeps_a_card_and_its_status_says_that_a_row_failed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = tmp_path / "card.json"
    with EmbeddedBroker(manner="kafka-with-data") as other:
        words = ["certify", "broker", "--bootstrap", other.bootstrap_servers, "--only", "fetch-empty"]
        assert main([*words, "--json", str(kept)]) == 1
    assert "0 of 1 pass, 1 fail" in capsys.readouterr().out
    assert '"grade": "fail"' in kept.read_text()
