"""`kclient-quota dashboards`: what it writes asks only for series that a real page has, and Prometheus takes it."""

import argparse
import json
import re
import shutil
import socket
import subprocess
import threading
import time
import urllib.request

import pytest
import yaml
from kclient_telemetry.receiver.endpoint import PrometheusEndpoint
from kclient_telemetry.receiver.exposition import Family
from prometheus_client.parser import text_string_to_metric_families as parse_text

from kclient_quota import Consumer, Producer
from kclient_quota.admin.effective import EffectiveQuotas
from kclient_quota.admin.quotas import QuotaAdmin
from kclient_quota.broker import EmbeddedBroker
from kclient_quota.cli import receive
from kclient_quota.cli.main import main
from kclient_quota.errors import ClusterError
from kclient_quota.operate.dashboards import pushed
from kclient_quota.operate.limit_series import NAME, LimitSeries, limit_family
from kclient_quota.quota.entity import DEFAULT, ClientQuotaEntity

SERIES = re.compile(r"\b(?:org_apache_kafka|kafka_client_telemetry|shared_by:kafka)_\w+(?::\w+)?")
BYTES_OUT = "org_apache_kafka_producer_node_outgoing_byte_rate"
RECEIVED = "org_apache_kafka_consumer_node_incoming_byte_rate"
PROMTOOL = shutil.which("promtool")
PROMETHEUS = shutil.which("prometheus")


@pytest.fixture
def written(tmp_path, capsys):
    grafana, rules = tmp_path / "grafana.json", tmp_path / "rules.yml"
    assert main(["dashboards", "--grafana", str(grafana), "--rules", str(rules)]) == 0
    assert capsys.readouterr().out.count("wrote ") == 2
    return json.loads(grafana.read_text()), yaml.safe_load(rules.read_text()), rules


@pytest.fixture(scope="module")
def page():
    """Samples, by name, of a page that a producer and a consumer under a quota have filled, with limits."""
    made = []
    endpoint = PrometheusEndpoint(more=lambda families: [each for limits in made for each in limits(families)])
    with EmbeddedBroker(topics={"t": 1}, exporters=[endpoint]) as cluster:
        cluster.set_client_metrics("all", interval_ms=200)
        cluster.set_quota(client_id="slow", producer_byte_rate=20_000, consumer_byte_rate=30_000)
        admin = QuotaAdmin({"bootstrap.servers": cluster.bootstrap_servers})
        made.append(LimitSeries(lambda: admin.index_client_quotas().result(), every_s=0.2))
        try:
            yield filled(cluster.bootstrap_servers, f"http://127.0.0.1:{endpoint.port}/metrics")
        finally:
            made[0].close(5_000)
            admin.close()


def filled(bootstrap, url):
    conf = {"bootstrap.servers": bootstrap, "client.id": "slow"}
    wanted = {*(name for _, _, name in pushed()), NAME, RECEIVED}
    found = {}
    deadline = time.monotonic() + 60
    with (
        Producer(conf) as producer,
        Consumer({**conf, "group.id": "g", "auto.offset.reset": "earliest"}) as consumer,
    ):
        consumer.subscribe(["t"])
        while not wanted <= set(found) and time.monotonic() < deadline:
            for _ in range(10):
                producer.produce("t", b"x" * 2_000)
                producer.poll(0)
                consumer.poll(0.02)
            with urllib.request.urlopen(url, timeout=60) as answer:
                families = list(parse_text(answer.read().decode()))
            found = {}
            for sample in (sample for family in families for sample in family.samples):
                found.setdefault(sample.name, []).append(sample)
    assert wanted <= set(found), wanted - set(found)
    return found


def asked_for(dashboard, rules):
    """Every PromQL expression."""
    rules = [rule["expr"] for group in rules["groups"] for rule in group["rules"]]
    return [*rules, *(target["expr"] for panel in dashboard["panels"] for target in panel["targets"])]


def test_only_series_of_a_real_page_are_asked_for(written, page):
    dashboard, rules, _ = written
    recorded = {rule["record"] for group in rules["groups"] for rule in group["rules"] if "record" in rule}
    named = {name for expr in asked_for(dashboard, rules) for name in SERIES.findall(expr)}
    assert named - recorded <= set(page)
    assert named >= recorded
    labels = {label for sample in (*page[BYTES_OUT], *page[NAME]) for label in sample.labels}
    assert labels >= {"principal", "client_id", "node_id", "shared_by", "quota"}


def test_limits_are_beside_what_the_clients_push(page):
    limits = {sample.labels["quota"]: sample for sample in page[NAME]}
    assert {key: sample.value for key, sample in limits.items()} == {
        "producer_byte_rate": 20_000,
        "consumer_byte_rate": 30_000,
    }
    (usage, *_) = page[BYTES_OUT]
    for sample in limits.values():
        assert {sample.labels[key] == usage.labels[key] for key in ("principal", "client_id")} == {True}
        assert sample.labels["entity"] == sample.labels["shared_by"] == "{client-id=slow}"


def test_the_dashboard_is_one_that_grafana_imports(written):
    dashboard, _, _ = written
    panels = dashboard["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels) > 20
    places = {(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels}
    assert len(places) == len(panels)
    assert all(panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24 for panel in panels)
    assert all(panel["title"] and panel["fieldConfig"]["defaults"]["unit"] for panel in panels)
    assert {variable["name"] for variable in dashboard["templating"]["list"]} == {"datasource", "client_id"}


if PROMTOOL is not None:  # of Debian's package prometheus; the suite must not ask for it

    def test_prometheus_takes_the_rules_and_they_mean_what_they_say(written, tmp_path):
        _, _, rules = written
        who = 'principal="User:a",client_id="{}"'
        series = []
        for client in ("one", "two"):  # share 1000 bytes per second on each broker
            mine = who.format(client)
            for node, rate in (("node-1", 400), ("node-2", 475)):
                name = f'{BYTES_OUT}{{{mine},node_id="{node}",client_instance_id="{client}"}}'
                series.append({"series": name, "values": f"{rate}+0x30"})
            limit = f'{NAME}{{{mine},quota="producer_byte_rate",shared_by="{{user=a}}"}}'
            series.append({"series": limit, "values": "1000+0x30"})
        test = {
            "rule_files": [str(rules)],
            "evaluation_interval": "1m",
            "tests": [
                {
                    "interval": "1m",
                    "input_series": series,
                    "promql_expr_test": [
                        {
                            "expr": "shared_by:kafka_producer_quota_use:ratio",
                            "eval_time": "5m",
                            "exp_samples": [
                                {
                                    "labels": 'shared_by:kafka_producer_quota_use:ratio{shared_by="{user=a}"}',
                                    "value": 0.95,
                                }
                            ],
                        }
                    ],
                    "alert_rule_test": [
                        {
                            "eval_time": "20m",
                            "alertname": "KafkaProducerQuotaNearlyUsed",
                            "exp_alerts": [
                                {
                                    "exp_labels": {"severity": "warning", "shared_by": "{user=a}"},
                                    "exp_annotations": {"summary": "The producer quota of {user=a} is used to 95%."},
                                }
                            ],
                        }
                    ],
                }
            ],
        }
        file = tmp_path / "test.yml"
        file.write_text(yaml.safe_dump(test))
        for words in (["check", "rules", str(rules)], ["test", "rules", str(file)]):
            done = subprocess.run([PROMTOOL, *words], capture_output=True, text=True, timeout=60, check=False)
            assert done.returncode == 0, done.stdout + done.stderr


if PROMETHEUS is not None:  # Debian's package; the suite must not ask for it

    def asked(port, path):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/{path}", timeout=5) as answer:
                return json.load(answer)["data"]
        except OSError:
            return None

    def test_a_real_prometheus_scrapes_the_page_and_evaluates_the_rules(written, tmp_path):
        _, _, rules = written
        with EmbeddedBroker(topics={"t": 1}, metrics_port=0) as cluster:
            cluster.set_client_metrics("all", interval_ms=200)
            cluster.set_quota(client_id="slow", producer_byte_rate=20_000)
            target = cluster.metrics_url.removeprefix("http://").removesuffix("/metrics")
            config = {
                "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
                "rule_files": [str(rules)],
                "scrape_configs": [{"job_name": "kafka", "static_configs": [{"targets": [target]}]}],
            }
            file = tmp_path / "prometheus.yml"
            file.write_text(yaml.safe_dump(config))
            with socket.create_server(("127.0.0.1", 0)) as server:
                port = server.getsockname()[1]
            words = [PROMETHEUS, f"--config.file={file}", f"--storage.tsdb.path={tmp_path / 'data'}"]
            words.append(f"--web.listen-address=127.0.0.1:{port}")
            with (
                subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as prometheus,
                Producer({"bootstrap.servers": cluster.bootstrap_servers, "client.id": "slow"}) as producer,
            ):
                try:
                    found = scraped(producer, port)
                finally:
                    prometheus.terminate()
        assert found["up"], "the page is one that Prometheus reads"
        assert {result["metric"]["client_id"] for result in found[BYTES_OUT]} == {"slow"}
        assert found["kafka_server_produce_byte_rate"], "brokers' own are on it, too"
        assert found["rules"]
        assert {rule["health"] for rule in found["rules"]} == {"ok"}

    def scraped(producer, port):
        """What it has of each series, and its rules once all are evaluated."""
        found, end = {}, time.monotonic() + 90
        while time.monotonic() < end:
            for _ in range(5):
                producer.produce("t", b"x" * 1_000)
                producer.poll(0.05)
            for name in ("up", BYTES_OUT, "kafka_server_produce_byte_rate"):
                found[name] = (asked(port, f"query?query={name}") or {}).get("result", [])
            groups = (asked(port, "rules") or {}).get("groups", [])
            found["rules"] = [rule for group in groups for rule in group["rules"]]
            is_evaluated = found["rules"] and all(rule["health"] != "unknown" for rule in found["rules"])
            if is_evaluated and all(found.values()) and found["up"][0]["value"][1] == "1":
                break
        return found


def test_a_limit_has_a_series_only_while_its_client_pushes():
    quotas = EffectiveQuotas(
        [
            (ClientQuotaEntity.of(user=DEFAULT), {"producer_byte_rate": 5.0}),
            (ClientQuotaEntity.of(user="silent"), {"producer_byte_rate": 7.0}),
        ]
    )
    labels = {"principal": "User:bob", "client_id": "", "client_instance_id": "i"}
    family = limit_family([Family("g", "gauge", [("", labels, 1.0)]), Family("own", "gauge", [("", {}, 1.0)])], quotas)
    ((_, found, value),) = family.samples
    assert (found["entity"], found["shared_by"], value) == ("{user=<default>}", "{user=bob}", 5)
    assert limit_family([], quotas).samples == []
    nobody = {"principal": "", "client_id": "", "client_instance_id": "i"}
    assert limit_family([Family("g", "gauge", [("", nobody, 1.0)])], quotas).samples == []


def test_limits_that_are_not_known_are_not_shown_and_that_is_said_once(caplog):
    asked = threading.Semaphore(0)

    def refused():
        asked.release()
        raise ClusterError("not allowed")

    limits = LimitSeries(refused, every_s=0.01)
    for _ in range(3):
        assert asked.acquire(timeout=60)
    assert limits([]) == []
    limits.close(5_000)
    assert caplog.text.count("limits of quotas are not on the page: not allowed") == 1


def test_a_cluster_that_has_fallen_silent_holds_nobody_up_who_ends():
    """Ctrl-C of `receive --limits` waited for the answer, and so did the end of the process: for all of `--timeout`."""
    parser = argparse.ArgumentParser()
    receive.add_arguments(parser)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        cluster = f"127.0.0.1:{silent.getsockname()[1]}"
        words = [
            "--from-topic",
            "t",
            "--metrics-port",
            "0",
            "--limits",
            "--timeout",
            "60",
            "--bootstrap-server",
            cluster,
        ]
        _, closers = receive._sinks(parser.parse_args(words))
        asking, _ = silent.accept()
        ending = threading.Thread(target=lambda: [close(100) for close in closers], daemon=True)
        ending.start()
        ending.join(20)
        is_held_up = ending.is_alive()
        left = [each.name for each in threading.enumerate() if not (each.daemon or each is threading.main_thread())]
        asking.close()
    ending.join(60)
    assert not is_held_up
    assert not [name for name in left if name.startswith("kclient")], "the interpreter waits for these"


def test_wrong_calls(tmp_path, capsys):
    assert main(["dashboards"]) == 2
    assert "--grafana FILE" in capsys.readouterr().err
    assert main(["dashboards", "--rules", str(tmp_path / "none" / "x")]) == 2
    assert "No such file" in capsys.readouterr().err
    assert main(["receive", "--from-topic", "t", "--limits", "--jsonl", str(tmp_path)]) == 2
    assert "--metrics-port" in capsys.readouterr().err
