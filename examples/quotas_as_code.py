"""Quotas as code: an empty cluster, a file, a plan, applied, applied again, changed by hand, taken back.

python examples/quotas_as_code.py                 # here, on an embedded broker; or with --bootstrap-server and without
kafka-quotas plan  quotas.yaml --bootstrap-server localhost:9092       # this page, the same by hand:
kafka-quotas apply quotas.yaml --bootstrap-server localhost:9092
kafka-quotas --describe --names user=alice,client-id=app --include-overrides --bootstrap-server localhost:9092
kafka-quotas undo  quotas.yaml --bootstrap-server localhost:9092
"""

import tempfile
from pathlib import Path

from kclient_quota.broker import EmbeddedBroker
from kclient_quota.cli.quotas import main as kafka_quotas

FILE = """\
version: 1
capacity: {consumer_byte_rate: 9000000}       # what one broker has, for shares
quotas:
  - defaults: [user]                          # everybody who has nothing of their own
    set:
      producer_byte_rate: 1048576             # on each broker, as Kafka enforces it
      consumer_byte_rate:shares: 1
  - names: {user: alice, client-id: app}
    set:
      producer_byte_rate:bps: 3000000         # in the whole cluster
      consumer_byte_rate:shares: 2
"""


def main() -> None:
    with EmbeddedBroker(brokers=3, topics={"orders": 6}) as cluster, tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "quotas.yaml")
        file.write_text(FILE)

        def run(*arguments: object) -> int:
            print("\n$ kafka-quotas", *(Path(str(each)).name if each == file else each for each in arguments))
            return kafka_quotas([*map(str, arguments), "--bootstrap-server", cluster.bootstrap_servers])

        run("plan", file)
        run("apply", file)
        run("diff", file)  # nothing: the cluster is as the file says
        run("--list")
        run("--describe", "--names", "user=alice,client-id=app", "--include-overrides")
        cluster.set_quota(user="mallory", producer_byte_rate=99)
        run("plan", file)  # what the file does not manage stays
        run("undo", file)
        run("export")


if __name__ == "__main__":
    main()
