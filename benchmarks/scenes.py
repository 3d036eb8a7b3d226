"""What is measured: every scene as a value, in a full and a quick size."""

from dataclasses import dataclass, replace

PEERS = ("plain", "kafka-python", "aiokafka")
OURS = "ours"
WARM_UP_S = 15


@dataclass(frozen=True)
class ProducerScene:
    """An over-subscribed producer.

    Attributes:
        quota: producer_byte_rate of its client-id.
        messages: how many to send, or 0 to send for `seconds`.
        seconds: how long to send, when `messages` is 0.
        size: bytes of every value.
        wait_s: how long to wait for outstanding delivery reports at the end.
    """

    name: str
    quota: int
    messages: int = 0
    seconds: int = 0
    size: int = 1000
    wait_s: int = 400


@dataclass(frozen=True)
class ConsumerScene:
    """A consumer with more to read than its quota allows.

    Attributes:
        quota: consumer_byte_rate of its client-id.
        batch_bytes: size of every record batch in the log.
        seconds: how long to read.
        partitions: of the topic; clients fetch up to a megabyte of each at a time.
    """

    name: str
    quota: int
    batch_bytes: int
    seconds: int
    partitions: int = 1


@dataclass(frozen=True)
class CallScene:
    """How many calls a second a client takes while nothing throttles it.

    Attributes:
        call: produce, produce-callback, consume or poll.
        messages: how many 100-byte messages a repeat moves.
        repeats: how often a process does so.
        rounds: how many processes each variant gets, taken in turns.
    """

    name: str
    call: str
    messages: int
    repeats: int
    rounds: int


@dataclass(frozen=True)
class BrokerScene:
    """The embedded broker itself, beside librdkafka's built-in mock.

    Attributes:
        messages: how many messages of 1 KiB a run moves.
        rounds: how often; the median counts.
    """

    name: str
    messages: int
    rounds: int


Scene = ProducerScene | ConsumerScene | CallScene | BrokerScene

FULL: tuple[Scene, ...] = (
    ProducerScene("producer-51200", quota=51_200, messages=10_000),
    ProducerScene("producer-20000", quota=20_000, messages=3_000),
    ProducerScene("producer-1mib", quota=1_048_576, seconds=60),
    ConsumerScene("consumer-1000000-200k", quota=1_000_000, batch_bytes=200_000, seconds=120, partitions=6),
    ConsumerScene("consumer-100000-16k", quota=100_000, batch_bytes=16_000, seconds=120),
    ConsumerScene("consumer-100000-470k", quota=100_000, batch_bytes=470_000, seconds=150),
    ConsumerScene("consumer-20000-470k", quota=20_000, batch_bytes=470_000, seconds=90),
    CallScene("calls-produce", call="produce", messages=100_000, repeats=5, rounds=7),
    CallScene("calls-produce-callback", call="produce-callback", messages=100_000, repeats=5, rounds=7),
    CallScene("calls-consume", call="consume", messages=200_000, repeats=8, rounds=7),
    CallScene("calls-poll", call="poll", messages=100_000, repeats=5, rounds=7),
    BrokerScene("embedded", messages=300_000, rounds=5),
)


def quick(scene: Scene) -> Scene:
    """The same scene in a size that says which way it goes, not the third digit."""
    match scene:
        case ProducerScene(messages=0):
            return replace(scene, seconds=40)
        case ProducerScene():
            return replace(scene, messages=min(scene.messages, scene.quota * 60 // 1000))
        case ConsumerScene():
            return replace(scene, seconds=60)
        case CallScene():
            return replace(scene, rounds=3)
        case BrokerScene():
            return replace(scene, messages=100_000, rounds=3)


def select(names: list[str], *, is_quick: bool) -> list[Scene]:
    """The scenes whose names begin with one of `names`; all of them when there is none.

    Raises:
        ValueError: naming what is known, when a name fits no scene.
    """
    for name in names:
        if not any(scene.name.startswith(name) for scene in FULL):
            raise ValueError(f"no scene {name!r}; known: {', '.join(scene.name for scene in FULL)}")
    chosen = [scene for scene in FULL if not names or any(scene.name.startswith(name) for name in names)]
    return [quick(scene) for scene in chosen] if is_quick else chosen
