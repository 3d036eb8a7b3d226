"""Our commands print what Apache Kafka's own tools print, on one cluster."""

import pytest

from kclient_quota.cli import client_metrics, quotas
from tests.contract.administered import apache, eventually

pytestmark = pytest.mark.timeout(300)


def kafkas_own_tool(java_tools, name, cluster, *arguments):
    """Its exit status and standard output."""
    done = java_tools.run(name, "--bootstrap-server", cluster.bootstrap_servers, *arguments)
    return done.returncode, done.stdout


def test_configs_prints_what_kafkas_own_tool_prints(capsys, java_tools):
    """The same alterations by Kafka's kafka-configs and by ours, on one cluster; both describe alike."""

    def theirs(*arguments):
        return kafkas_own_tool(java_tools, "kafka.admin.ConfigCommand", cluster, *arguments)

    def ours(*arguments):
        status = quotas.main(["configs", "--bootstrap-server", cluster.bootstrap_servers, *arguments])
        return status, capsys.readouterr().out

    with apache() as cluster:
        add = "--add-config=request_percentage=200,producer_byte_rate=10485760,consumer_byte_rate=123456789"
        for who in (["--user=a"], ["--user=a", "--client-defaults"], ["--user-defaults", "--client-defaults"]):
            said = ours("--alter", *who, add)
            assert said[0] == 0
            assert theirs("--alter", *who, add) == said
            wanted = theirs("--describe", *who)
            assert eventually(lambda who=who: ours("--describe", *who), lambda found: found[1]) == wanted
            assert "1.23456789E8" in wanted[1]
        assert ours("--describe", "--user=none") == theirs("--describe", "--user=none")
        wrong = ["--alter", "--user=a", "--delete-config=controller_mutation_rate"]
        assert (ours(*wrong)[0], theirs(*wrong)[0]) == (1, 1)


def test_client_metrics_prints_what_kafkas_own_tool_prints(capsys, java_tools):
    def theirs(*arguments):
        return kafkas_own_tool(java_tools, "org.apache.kafka.tools.ClientMetricsCommand", cluster, *arguments)

    def ours(*arguments):
        status = client_metrics.main(["--bootstrap-server", cluster.bootstrap_servers, *arguments])
        return status, capsys.readouterr().out

    with apache() as cluster:
        assert ours("--list") == theirs("--list")
        values = ["--name=BASIC", "--interval=60000", "--metrics=org.apache.kafka.consumer.,a", "--match=client_id=b"]
        assert ours("--alter", *values) == theirs("--alter", *values)
        for question in (["--list"], ["--describe"], ["--describe", "--name=BASIC"], ["--describe", "--name=nope"]):
            wanted = theirs(*question)
            assert eventually(lambda question=question: ours(*question), lambda found: found[1].strip()) == wanted
        ours("--alter", "--name=BASIC", "--interval=", "--match=")
        reset = eventually(lambda: ours("--describe", "--name=BASIC"), lambda found: "interval.ms=300000" in found[1])
        assert reset == theirs("--describe", "--name=BASIC")
        assert ours("--delete", "--name=BASIC") == theirs("--delete", "--name=BASIC")
