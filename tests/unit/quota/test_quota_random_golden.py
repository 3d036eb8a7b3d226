"""Random operations on Apache Kafka 4.3.1's own ClientQuotaManager (quota type Fetch), and what it answered to each.

A line is an operation: `T` ms went by; `S` set or removed ("-") the limit of a user and a client-id ("*" the default,
"-" none), and the quota types enabled after it; `R` recorded a value and was answered a throttle time; `U` took it
back; `Q` asked for the bound and the most a window may take; `M` read every byte-rate.
"""

from pathlib import Path

import pytest

from kclient_quota.quota.callback import ClientQuotaType, DefaultQuotaCallback
from kclient_quota.quota.entity import DEFAULT, ClientQuotaEntity
from kclient_quota.quota.manager import ClientQuotaManager

GOLDEN = Path(__file__).parent / "golden"


class Replay:
    def __init__(self):
        self.callback = DefaultQuotaCallback(share_empty_client_id=False)
        self.manager = ClientQuotaManager(ClientQuotaType.FETCH, self.callback)
        self.now = 1_700_000_000_000

    def pass_time(self, duration_ms):
        self.now += int(duration_ms)

    def set_quota(self, user, client_id, limit, enabled):
        names = {"user": user, "client_id": client_id}
        entity = {key: DEFAULT if name == "*" else name for key, name in names.items() if name != "-"}
        self.manager.update_quota(ClientQuotaEntity.of(**entity), None if limit == "-" else float(limit))
        assert self.callback.quota_types_enabled(ClientQuotaType.FETCH) == int(enabled)

    def record(self, user, client_id, value, throttle):
        found = self.manager.maybe_record_and_get_throttle_time_ms(user, client_id, float(value), self.now)
        assert found == int(throttle)

    def unrecord(self, user, client_id, value):
        self.manager.unrecord(user, client_id, float(value), self.now)

    def ask(self, user, client_id, bound, most):
        assert self.manager.quota(user, client_id) == float(bound)
        assert self.manager.max_value_in_quota_window(user, client_id) == float(most)

    def measure(self, *rates):
        found = [(m.tags, m.value) for m in self.manager.metrics(self.now) if m.name == "byte-rate"]
        assert {f"{tags['user']}/{tags['client-id']}={value!r}" for tags, value in found} == {
            f"{name}={float(value)!r}" for name, _, value in (rate.rpartition("=") for rate in rates)
        }


@pytest.mark.parametrize("name", ["random-levels-4.3.1.txt", "random-rates-4.3.1.txt"])
def test_every_answer_is_kafkas(name):
    replay = Replay()
    verbs = {
        "S": replay.set_quota,
        "R": replay.record,
        "U": replay.unrecord,
        "Q": replay.ask,
        "M": replay.measure,
    }
    throttled = 0
    for number, line in enumerate((GOLDEN / name).read_text().splitlines(), 1):
        if line.startswith("T "):
            replay.pass_time(line[2:])
            continue
        verb, *arguments = line.split("|")
        throttled += verb == "R" and arguments[-1] != "0"
        try:
            verbs[verb](*arguments)
        except AssertionError as error:
            error.add_note(f"line {number}: {line}")
            raise
    assert throttled > 100
