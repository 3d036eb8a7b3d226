"""Apache Kafka's own command-line tools, called one after the other: the same calls, the same exit codes."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from kclient_quota.testing.apache.artefacts import class_path
from tests.peers.outcomes import FAIL, PASS, Outcomes

if TYPE_CHECKING:
    from tests.peers.brokers import Addresses

_PATIENCE_S = 60
_TOOLS = "org.apache.kafka.tools."
_FORMATTERS = f"{_TOOLS}consumer."

_JAVA = {
    "topics": _TOOLS + "TopicCommand",
    "configs": "kafka.admin.ConfigCommand",
    "acls": _TOOLS + "AclCommand",
    "consumer-groups": _TOOLS + "consumer.group.ConsumerGroupCommand",
    "groups": _TOOLS + "GroupsCommand",
    "get-offsets": _TOOLS + "GetOffsetShell",
    "delete-records": _TOOLS + "DeleteRecordsCommand",
    "leader-election": _TOOLS + "LeaderElectionCommand",
    "reassign-partitions": _TOOLS + "reassign.ReassignPartitionsCommand",
    "log-dirs": _TOOLS + "LogDirsCommand",
    "transactions": _TOOLS + "TransactionsCommand",
    "features": _TOOLS + "FeatureCommand",
    "metadata-quorum": _TOOLS + "MetadataQuorumCommand",
    "cluster": _TOOLS + "ClusterTool",
    "broker-api-versions": _TOOLS + "BrokerApiVersionsCommand",
    "client-metrics": _TOOLS + "ClientMetricsCommand",
    "console-producer": _TOOLS + "ConsoleProducer",
    "console-consumer": _TOOLS + "consumer.ConsoleConsumer",
    "producer-perf-test": _TOOLS + "ProducerPerformance",
    "consumer-perf-test": _TOOLS + "ConsumerPerformance",
    "verifiable-producer": _TOOLS + "VerifiableProducer",
    "verifiable-consumer": _TOOLS + "VerifiableConsumer",
    "e2e-latency": _TOOLS + "EndToEndLatency",
    "replica-verification": _TOOLS + "ReplicaVerificationTool",
    "delegation-tokens": _TOOLS + "DelegationTokenCommand",
    "streams-application-reset": _TOOLS + "StreamsResetter",
}

# one call a line: {s} is where the brokers are, {f} a folder with files, {c} the formatters' package
_CALLS = """
cluster cluster-id {s}
cluster list-endpoints {s}
broker-api-versions {s}
topics {s} --create --topic t --partitions 4 --replication-factor 2
topics {s} --create --topic t
topics {s} --create --if-not-exists --topic t
topics {s} --create --topic c --config cleanup.policy=compact --config segment.ms=1000
topics {s} --create --topic a --replica-assignment 1:2,2:3,3:1
topics {s} --create --topic bad/name
topics {s} --create --topic wrong --config no.such.key=1
topics {s} --create --topic wrong --replication-factor 9
topics {s} --list
topics {s} --list --exclude-internal
topics {s} --describe
topics {s} --describe --topic t
topics {s} --describe --topic nothing
topics {s} --describe --under-replicated-partitions
topics {s} --describe --topics-with-overrides
topics {s} --alter --topic t --partitions 6
topics {s} --alter --topic t --partitions 2
configs {s} --describe --entity-type topics --entity-name c
configs {s} --describe --all --entity-type topics --entity-name t
configs {s} --alter --entity-type topics --entity-name t --add-config retention.ms=3600000
configs {s} --alter --entity-type topics --entity-name t --delete-config retention.ms
configs {s} --alter --entity-type topics --entity-name t --add-config retention.ms=soon
configs {s} --describe --entity-type brokers --entity-name 1
configs {s} --describe --all --entity-type brokers --entity-name 1
configs {s} --alter --entity-type brokers --entity-default --add-config log.retention.ms=3600000
configs {s} --describe --entity-type broker-loggers --entity-name 1
configs {s} --alter --entity-type users --entity-name u --add-config producer_byte_rate=100000
configs {s} --alter --entity-type clients --entity-default --add-config consumer_byte_rate=900000
configs {s} --describe --entity-type users --entity-name u
configs {s} --describe --entity-type clients
configs {s} --alter --entity-type users --entity-name u --add-config SCRAM-SHA-256=[password=p]
configs {s} --describe --entity-type users
configs {s} --alter --entity-type ips --entity-name 127.0.0.9 --add-config connection_creation_rate=9
configs {s} --describe --entity-type ips
configs {s} --alter --entity-type groups --entity-name g --add-config consumer.session.timeout.ms=45000
configs {s} --describe --entity-type groups --entity-name g
client-metrics {s} --alter --name m --metrics org.apache.kafka. --interval 60000
client-metrics {s} --list
client-metrics {s} --describe --name m
client-metrics {s} --delete --name m
acls {s} --list
console-producer {s} --topic t <{f}/lines
console-producer {s} --topic c --property parse.key=true --property key.separator=: <{f}/lines
producer-perf-test {s} --topic t --num-records 2000 --record-size 100 --throughput -1
producer-perf-test {s} --topic t --num-records 500 --record-size 100 --throughput -1 --transaction-duration-ms 100
verifiable-producer {s} --topic t --max-messages 200
console-consumer {s} --topic t --from-beginning --max-messages 500
console-consumer {s} --topic t --from-beginning --max-messages 500 --group g
console-consumer {s} --topic t --from-beginning --max-messages 300 --group g848 --consumer.config {f}/g848
console-consumer {s} --topic t --partition 0 --offset earliest --max-messages 1 --isolation-level read_committed
console-consumer {s} --topic __consumer_offsets --from-beginning {o} --formatter {c}OffsetsMessageFormatter
console-consumer {s} --topic __consumer_offsets --from-beginning {o} --formatter {c}GroupMetadataMessageFormatter
console-consumer {s} --topic __transaction_state --from-beginning {o} --formatter {c}TransactionLogMessageFormatter
consumer-perf-test {s} --topic t --num-records 1000 --timeout 20000
verifiable-consumer {s} --topic t --group-id v --max-messages 50 --reset-policy earliest
e2e-latency {s} --topic t --num-records 50 --producer-acks 1 --record-size 100
get-offsets {s} --topic t
get-offsets {s} --topic t --time earliest
get-offsets {s} --topic t --time max-timestamp
get-offsets {s} --topic-partitions t:0-2,c
get-offsets {s} --exclude-internal-topics
groups {s} --list
groups {s} --list --consumer
consumer-groups {s} --list
consumer-groups {s} --list --state --type
consumer-groups {s} --describe --group g
consumer-groups {s} --describe --group g --members --verbose
consumer-groups {s} --describe --group g --state
consumer-groups {s} --describe --group g848 --offsets --verbose
consumer-groups {s} --describe --group nothing
consumer-groups {s} --describe --all-groups
consumer-groups {s} --reset-offsets --group g --topic t --to-earliest --dry-run
consumer-groups {s} --reset-offsets --group g --topic t --shift-by -10 --execute
consumer-groups {s} --reset-offsets --group g848 --all-topics --to-latest --execute
consumer-groups {s} --delete-offsets --group g --topic t
consumer-groups {s} --delete --group g
consumer-groups {s} --delete --group nothing
delete-records {s} --offset-json-file {f}/delete.json
leader-election {s} --election-type preferred --all-topic-partitions
leader-election {s} --election-type unclean --topic t --partition 0
reassign-partitions {s} --generate --topics-to-move-json-file {f}/move.json --broker-list 1,2
reassign-partitions {s} --execute --reassignment-json-file {f}/plan.json
reassign-partitions {s} --verify --reassignment-json-file {f}/plan.json
reassign-partitions {s} --list
log-dirs {s} --describe
log-dirs {s} --describe --broker-list 1 --topic-list t
transactions {s} list
transactions {s} describe --transactional-id nothing
transactions {s} describe-producers --topic t --partition 0
transactions {s} find-hanging --broker-id 1
features {s} describe
features {s} upgrade --feature transaction.version=2
metadata-quorum {s} describe --status
metadata-quorum {s} describe --replication
delegation-tokens {s} --describe --command-config {f}/empty
streams-application-reset {s} --application-id app --input-topics t
topics {s} --delete --topic a
topics {s} --delete --topic nothing
"""


def run_tools(_folder: Path, results: Path, addresses: Addresses, _patience_s: int) -> Outcomes:
    """Make every call; it passes if the tool ended with 0. Those that must fail are told by where they fail."""
    found = {}
    with tempfile.TemporaryDirectory() as files, (results / "tools.log").open("w") as log:
        _write(Path(files))
        for line in _CALLS.strip().splitlines():
            code, said = _call(
                line.format(
                    s=f"--bootstrap-server {','.join(addresses.plain)}", f=files, c=_FORMATTERS, o="--max-messages 1"
                )
            )
            log.write(f"$ {line}\n{said}\n[{code}]\n\n")
            log.flush()
            found[line.replace(" {s}", "").replace("{f}/", "").replace("{c}", "").replace("{o} ", "")] = (
                FAIL if code else PASS
            )
    return found


def _write(folder: Path) -> None:
    (folder / "empty").touch()
    (folder / "g848").write_text("group.protocol=consumer\n")
    (folder / "lines").write_text("".join(f"k{number % 10}:v{number}\n" for number in range(100)))
    (folder / "delete.json").write_text('{"version": 1, "partitions": [{"topic": "t", "partition": 0, "offset": 1}]}')
    (folder / "move.json").write_text('{"version": 1, "topics": [{"topic": "t"}]}')
    plan = '{"topic": "c", "partition": 0, "replicas": [2, 3]}'
    (folder / "plan.json").write_text(f'{{"version": 1, "partitions": [{plan}]}}')


def _call(line: str) -> tuple[int, str]:
    line, _, source = line.partition(" <")
    tool, *arguments = line.split()
    java = ["java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m", "-cp", class_path(), _JAVA[tool]]
    with Path(source or os.devnull).open() as given:
        try:
            done = subprocess.run(
                [*java, *arguments],
                stdin=given,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=_PATIENCE_S,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            return -1, (error.stdout or b"").decode() + f"\nno end after {_PATIENCE_S} s"
    return done.returncode, done.stdout
