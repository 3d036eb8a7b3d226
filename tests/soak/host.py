"""Three embedded brokers in a process of their own, told by lines of JSON what to do; it sums up what it has seen."""

import json
import sys
from collections import defaultdict
from typing import Any

from kclient_quota.broker import EmbeddedBroker

PRODUCE = 0
PROPERTIES = {
    # whoever left an hour ago is forgotten soon, so that memory may be compared within an hour
    "producer.id.expiration.ms": "60000",
    "offsets.topic.replication.factor": "3",
}
RETAINED = {"retention.bytes": "4000000", "segment.bytes": "1048576"}
COUNTS = "org.apache.kafka.producer.produce.throttle.count"
TIMES = "org.apache.kafka.producer.produce.throttle.time.total"


class Host:
    """What brokers have answered, summed by client-id; what they remember for tests is forgotten when it is counted."""

    def __init__(self, broker: EmbeddedBroker) -> None:
        self._broker = broker
        self.throttles: dict[str, list[int]] = defaultdict(lambda: [0, 0])
        self.pushed: dict[str, list[int]] = defaultdict(lambda: [0, 0])
        self.pushes = 0

    def count(self) -> dict[str, Any]:
        """Sums since the start."""
        broker = self._broker
        requests, pushes = broker._call(self._taken)
        for request in requests:
            if request.api_key == PRODUCE and request.throttle_time_ms:
                sums = self.throttles[request.client_id or ""]
                sums[0] += 1
                sums[1] += request.throttle_time_ms
        for push in pushes:
            self._add(push)
        return {"throttles": self.throttles, "pushed": self.pushed, "pushes": self.pushes}

    def _taken(self) -> tuple[list[Any], list[Any]]:
        runtime, telemetry = self._broker._running(), self._broker._telemetry()
        taken = list(runtime.requests), list(telemetry.pushes)
        runtime.requests.clear()
        telemetry.pushes.clear()
        return taken

    def _add(self, push: Any) -> None:
        self.pushes += 1
        for resource in push.decode().resource_metrics:
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    if metric.name in {COUNTS, TIMES}:
                        value = sum(point.as_double or point.as_int for point in metric.sum.data_points)
                        self.pushed[push.client_id or ""][metric.name == TIMES] += round(value)


def main() -> None:
    """Serve until standard input ends."""
    with EmbeddedBroker(brokers=3, properties=PROPERTIES) as broker:
        host = Host(broker)
        print(json.dumps(broker.bootstrap_servers), flush=True)
        for line in sys.stdin:
            asked = json.loads(line)
            match asked.pop("verb"):
                case "topic":
                    broker.create_topic(asked["name"], asked["partitions"], configs=RETAINED, replication=3)
                case "quota":
                    broker.set_quota(**asked)
                case "restart":
                    broker.restart(asked["broker"])
                case "stop":
                    broker.stop_broker(asked["broker"])
                case "start":
                    broker.start_broker(asked["broker"])
                case "subscription":
                    broker.set_client_metrics("all", interval_ms=asked["interval_ms"])
            print(json.dumps(host.count()), flush=True)


if __name__ == "__main__":
    main()
