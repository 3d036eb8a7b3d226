"""Applications on a broker whose disk fills up, or has a damaged batch."""

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from kclient_quota.broker import EmbeddedBroker
from kclient_quota.broker.storage.disk import Disk
from kclient_quota.errors import ClusterError, ConfigError


class Room(Disk):
    """A disk that can be filled up."""

    is_full = False

    def write(self, fd, parts):
        if Room.is_full:
            raise OSError(28, "No space left on device")
        return super().write(fd, parts)


@pytest.fixture
def full_disk(monkeypatch):
    monkeypatch.setattr(Room, "is_full", False)
    monkeypatch.setattr("kclient_quota.broker.storage.cluster_storage.Disk", Room)

    def fill(is_full):
        Room.is_full = is_full

    return fill


def create(admin, name):
    (future,) = admin.create_topics([NewTopic(name, 1)]).values()
    return future.result(60)


def produced(broker, topic, value):
    errors = []
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "retries": 0, "log_level": 0})
    producer.produce(topic, value, on_delivery=lambda error, _: errors.append(error))
    producer.flush(60)
    return errors[0]


def test_what_a_full_disk_does_not_take_is_not_acknowledged_and_comes_back_when_there_is_room(tmp_path, full_disk):
    with EmbeddedBroker(
        data_dir=tmp_path, topics={"t": 1}, properties={"auto.create.topics.enable": "false"}
    ) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        assert produced(broker, "t", b"before") is None
        full_disk(True)
        for _ in range(2):
            with pytest.raises(KafkaException) as caught:
                create(admin, "new")
            assert caught.value.args[0].code() == KafkaError.KAFKA_STORAGE_ERROR, "also when it is tried again"
        with pytest.raises(ClusterError, match="No space left"):
            broker.create_topic("by-hand")
        with pytest.raises(ClusterError, match="No space left"):
            broker.set_quota(client_id="c", producer_byte_rate=5.0)
        assert produced(broker, "t", b"refused") is not None
        full_disk(False)
        create(admin, "new")
        assert produced(broker, "new", b"after") is None
        assert produced(broker, "t", b"after") is None
    with EmbeddedBroker(data_dir=tmp_path) as broker:
        assert values(broker, "new") == [b"after"]
        assert values(broker, "t") == [b"before", b"after"]
        topics = AdminClient({"bootstrap.servers": broker.bootstrap_servers}).list_topics(timeout=60).topics
        assert set(topics) - {"__consumer_offsets"} == {"t", "new"}


def reader(broker):
    return Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "reader",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )


def values(broker, topic, offset=0):
    consumer, found = reader(broker), []
    consumer.assign([TopicPartition(topic, 0, offset)])
    while (message := consumer.poll(60)) is not None:
        if message.error():
            code = message.error().code()
            consumer.close()
            return found if code == KafkaError._PARTITION_EOF else [*found, code]
        found.append(message.value())
    raise AssertionError("neither a message nor the end")


def test_a_damaged_batch_is_fetched_as_corrupt_and_its_neighbours_as_they_are(tmp_path, caplog):
    with EmbeddedBroker(data_dir=tmp_path, topics={"t": 1}) as broker:
        for number in range(5):
            assert produced(broker, "t", b"%d" % number) is None
    (path,) = tmp_path.glob("logs/*/*/*.log")
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with EmbeddedBroker(data_dir=tmp_path) as broker:
        assert "the batch of offsets 2 to 2 is damaged" in caplog.text
        assert values(broker, "t") == [b"0", b"1", KafkaError.INVALID_MSG]
        assert values(broker, "t", 3) == [b"3", b"4"]
        assert produced(broker, "t", b"5") is None
        assert values(broker, "t", 3) == [b"3", b"4", b"5"]


@pytest.mark.parametrize(
    "configs", [{"retention.bytes": "many"}, {"retention.bites": "1"}, {"message.timestamp.type": "Never"}]
)
def test_a_topic_of_wrong_configuration_is_not_there_at_all(configs):
    with EmbeddedBroker() as broker:
        with pytest.raises(ConfigError, match=next(iter(configs))):
            broker.create_topic("t", 3, configs)
        broker.create_topic("t", 3)
        with pytest.raises(ConfigError, match="exists already"):
            broker.create_topic("t", 3, {"retention.bytes": "5"})
        assert (
            len(
                AdminClient({"bootstrap.servers": broker.bootstrap_servers}).list_topics("t", 60).topics["t"].partitions
            )
            == 3
        )
