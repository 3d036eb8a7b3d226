"""What `certify broker` cannot remove from a cluster again is told of: it was left there without a word."""

from types import SimpleNamespace

import pytest

from kclient_quota.certify.brokers import probe as probes
from kclient_quota.certify.brokers.probe import Probe
from kclient_quota.errors import ClusterError
from kclient_quota.quota.entity import ClientQuotaEntity
from kclient_quota.wire.error_codes import ErrorCode
from kclient_quota.wire.messages import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)

ENTITY = ClientQuotaEntity.of(client_id="certify-1-row")


class Cluster:
    """Stands for the connection to one that answers so."""

    def __init__(self, quotas, topics):
        self.answers = {AlterClientQuotasRequest: quotas, DeleteTopicsRequest: topics}
        self.asked = []

    def ask_controller(self, request, **_):
        self.asked.append(type(request))
        answer = self.answers[type(request)]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def close(self):
        self.asked.append("closed")


def quotas(code):
    entry = AlterClientQuotasResponse.EntryData(error_code=code, error_message=None, entity=[])
    return AlterClientQuotasResponse(throttle_time_ms=0, entries=[entry])


def topics(code):
    found = DeleteTopicsResponse.DeletableTopicResult(name="certify-1-row-t", error_code=code)
    return DeleteTopicsResponse(responses=[found])


def told(cluster, caplog, monkeypatch):
    monkeypatch.setattr(probes, "_AGAIN_S", (0.25, 0.5))
    waited = []
    monkeypatch.setattr(probes, "time", SimpleNamespace(sleep=waited.append, monotonic=lambda: 0))
    row = Probe({"bootstrap.servers": "127.0.0.1:1"}, "certify-1-row")
    row.client = cluster
    row._quotas[ENTITY] = {"producer_byte_rate"}
    row._topics.append("certify-1-row-t")
    row.close()
    assert cluster.asked[-1] == "closed"
    return [record.message for record in caplog.records], waited


def test_a_cluster_that_does_not_answer(caplog, monkeypatch):
    silent = ClusterError("did not answer within 30 s")
    said, waited = told(Cluster(silent, silent), caplog, monkeypatch)
    assert said == [
        f"{what} could not be removed from the cluster, look after it: did not answer within 30 s"
        for what in ("the quota of {client-id=certify-1-row}", "the topics certify-1-row-t")
    ]
    assert waited == [0.25, 0.5]


@pytest.mark.parametrize("code", [ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.THROTTLING_QUOTA_EXCEEDED])
def test_a_cluster_that_refuses(code, caplog, monkeypatch):
    said, _ = told(Cluster(quotas(ErrorCode.NOT_CONTROLLER), topics(code)), caplog, monkeypatch)
    assert [line.rpartition("look after it: ")[2] for line in said] == [
        "NOT_CONTROLLER (41)",
        f"certify-1-row-t: {code.name} ({code.value})",
    ]


@pytest.mark.parametrize("code", [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION])
def test_what_is_gone_or_never_was_there_is_no_matter(code, caplog, monkeypatch):
    cluster = Cluster(quotas(ErrorCode.INVALID_REQUEST), topics(code))
    assert told(cluster, caplog, monkeypatch) == ([], [])
