"""What a broker logs of requests that its disk is in the way of: a line a minute, however often clients ask again."""

import errno

from kclient_quota.wire.error_codes import ErrorCode
from kclient_quota.wire.messages import CreateTopicsRequest
from tests.unit.broker.enforced_cluster import Cluster


class FullDisk:
    """A cluster that keeps nothing."""

    def __init__(self):
        self.cluster = Cluster()
        self.number = errno.ENOSPC
        self.asked = 0
        self.cluster.state.on_save = self._refuse

    def _refuse(self, cluster, changes):
        raise OSError(self.number, "no")

    def ask(self, times):
        for _ in range(times):
            self.asked += 1
            topic = CreateTopicsRequest.CreatableTopic(name=f"n{self.asked}", num_partitions=1, replication_factor=1)
            answer = self.cluster.send(CreateTopicsRequest(topics=[topic], timeout_ms=1000))
            assert [one.error_code for one in answer.topics] == [ErrorCode.KAFKA_STORAGE_ERROR]


def test_it_is_said_once_a_minute_how_many_were_refused(caplog):
    disk = FullDisk()
    disk.ask(1000)
    first = "broker 1: the disk is in the way of a request, which is refused: [Errno 28] no"
    assert caplog.messages == [first]
    disk.cluster.scheduler.pass_ms(59_999)
    disk.ask(1)
    assert caplog.messages == [first]
    disk.cluster.scheduler.pass_ms(1)
    disk.ask(1)
    (second,) = caplog.messages[1:]
    assert second == "broker 1: the disk is in the way of 1001 more requests, which are refused: [Errno 28] no"
    disk.cluster.scheduler.pass_ms(60_000)
    disk.ask(1)
    assert caplog.messages[2:] == [first]


def test_another_reason_is_said_beside_it(caplog):
    disk = FullDisk()
    disk.ask(2)
    disk.number = errno.EIO
    disk.ask(2)
    assert [message.partition(": [")[2] for message in caplog.messages] == ["Errno 28] no", "Errno 5] no"]
