"""What is measured: every scene as a value, in a full, a quick and a tiny size."""

from collections.abc import Callable
from dataclasses import dataclass, replace

PEERS = ("plain", "plain-our-settings", "plain-tuned", "kafka-python", "aiokafka", "java", "java-tuned")
"""The others, as shipped; `-our-settings`, with what ours tells librdkafka; `-tuned`, by hand for this very quota."""
TUNED = ("plain-our-settings", "plain-tuned", "java-tuned")
"""Those that exist as producers only."""
OURS = "ours"
WARM_UP_S = 15


@dataclass(frozen=True)
class ProducerScene:
    """An over-subscribed producer.

    Attributes:
        quota: producer_byte_rate of its client-id.
        messages: how many to send, or 0 to send for `seconds`.
        seconds: how long to send, when `messages` is 0.
        size: bytes of every value, about.
        wait_s: how long to wait for outstanding delivery reports at the end.
        kind: what values are made of (`payloads`).
        partitions: of the topic, which keys choose; 0 for one partition without keys.
        compression: compression.type of the client.
        keyless_partitions: of a topic to which messages without keys go.
        max_delay_ms: `quota.max.delay.ms` of ours; 0 for its own.
        queue_kbytes: `queue.buffering.max.kbytes` of librdkafka's clients; 0 for their own.
    """

    name: str
    quota: int
    messages: int = 0
    seconds: int = 0
    size: int = 1000
    wait_s: int = 400
    kind: str = "dots"
    partitions: int = 0
    compression: str = "none"
    keyless_partitions: int = 0
    max_delay_ms: int = 0
    queue_kbytes: int = 0


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
class LoopScene:
    """A consume-transform-produce loop with more to read than its producer's quota lets it send.

    Attributes:
        quota: producer_byte_rate of its producer's client-id.
        seconds: how long it goes on.
        commit_every: messages between a flush with its commit and the next.
        poll_interval_ms: max.poll.interval.ms and session.timeout.ms of its consumer.
    """

    name: str
    quota: int
    seconds: int
    commit_every: int = 250
    poll_interval_ms: int = 6_000


@dataclass(frozen=True)
class CallScene:
    """How many calls a second a client takes while nothing throttles it.

    Attributes:
        call: produce, produce-callback, consume or poll; aio-produce or aio-consume.
        variants: who makes them; what begins with "ours" needs ours, and so on.
        messages: how many 100-byte messages a repeat moves.
        repeats: how often a process does so.
        rounds: how many processes each variant gets, taken in turns.
    """

    name: str
    call: str
    messages: int
    repeats: int
    rounds: int
    variants: tuple[str, ...] = ("plain", "ours", "ours-gated")


TEST_BROKERS = ("embedded", "mock", "kfake")
"""The embedded broker, librdkafka's mock and franz-go's; the last where Go is there."""


@dataclass(frozen=True)
class BrokerScene:
    """The embedded broker itself, beside librdkafka's built-in mock and franz-go's kfake.

    Attributes:
        messages: how many messages of 1 KiB, and then of 100 bytes, a run moves.
        rounds: how often; the median counts.
    """

    name: str
    messages: int
    rounds: int


QuotaScene = ProducerScene | ConsumerScene | LoopScene
Scene = QuotaScene | CallScene | BrokerScene

_PRODUCE = ("plain", "plain-same-settings", "ours", "ours-gated")
_AIO = ("plain", "aiokafka", "ours")

_ORDERS = ProducerScene("", quota=51_200, seconds=120, size=290, kind="orders", wait_s=30)
_KEYED = (
    replace(_ORDERS, name="orders-zstd-1", partitions=1, compression="zstd"),
    replace(_ORDERS, name="orders-zstd-3", partitions=3, compression="zstd"),
    replace(_ORDERS, name="orders-zstd-12", partitions=12, compression="zstd"),
    replace(_ORDERS, name="orders-zstd-100", partitions=100, compression="zstd"),
    replace(_ORDERS, name="orders-lz4-12", partitions=12, compression="lz4"),
    replace(_ORDERS, name="orders-none-3", partitions=3),
    replace(_ORDERS, name="orders-zstd-12-1mib", partitions=12, compression="zstd", quota=1_048_576, seconds=60),
    replace(_ORDERS, name="noise-1k-3", partitions=3, size=1000, kind="noise"),
)

FULL: tuple[Scene, ...] = (
    ProducerScene("producer-51200", quota=51_200, messages=10_000),
    ProducerScene("producer-20000", quota=20_000, messages=3_000),
    ProducerScene("producer-1mib", quota=1_048_576, seconds=60),
    *_KEYED,
    ConsumerScene("consumer-1000000-200k", quota=1_000_000, batch_bytes=200_000, seconds=120, partitions=6),
    ConsumerScene("consumer-100000-16k", quota=100_000, batch_bytes=16_000, seconds=120),
    ConsumerScene("consumer-100000-470k", quota=100_000, batch_bytes=470_000, seconds=150),
    ConsumerScene("consumer-20000-470k", quota=20_000, batch_bytes=470_000, seconds=90),
    LoopScene("loop-20000", quota=20_000, seconds=100),
    CallScene("calls-produce", call="produce", messages=100_000, repeats=5, rounds=7, variants=_PRODUCE),
    CallScene(
        "calls-produce-callback", call="produce-callback", messages=100_000, repeats=5, rounds=7, variants=_PRODUCE
    ),
    CallScene("calls-consume", call="consume", messages=200_000, repeats=8, rounds=7),
    CallScene("calls-poll", call="poll", messages=100_000, repeats=5, rounds=7),
    CallScene("calls-aio-produce", call="aio-produce", messages=20_000, repeats=5, rounds=3, variants=_AIO),
    CallScene("calls-aio-consume", call="aio-consume", messages=100_000, repeats=4, rounds=3, variants=_AIO),
    BrokerScene("embedded", messages=300_000, rounds=5),
)


def quick(scene: Scene) -> Scene:
    """The same scene in a size that says which way it goes, not the third digit."""
    match scene:
        case ProducerScene(messages=0):
            return replace(scene, seconds=min(scene.seconds, 60 if scene.partitions else 40))
        case ProducerScene():
            return replace(scene, messages=min(scene.messages, scene.quota * 60 // 1000))
        case ConsumerScene() | LoopScene():
            return replace(scene, seconds=60)
        case CallScene():
            return replace(scene, rounds=min(scene.rounds, 3))
        case BrokerScene():
            return replace(scene, messages=100_000, rounds=3)


def tiny(scene: Scene) -> Scene:
    """The same scene in seconds: it says whether everything works, nothing else."""
    match scene:
        case ProducerScene(messages=0):
            return replace(scene, seconds=4, wait_s=20)
        case ProducerScene():
            return replace(scene, messages=scene.quota * 14 // 1000, wait_s=20)
        case ConsumerScene():
            return replace(scene, seconds=6)
        case LoopScene():
            return replace(scene, seconds=12, commit_every=50)
        case CallScene():
            return replace(scene, rounds=1, repeats=1, messages=scene.messages // 20)
        case BrokerScene():
            return replace(scene, messages=10_000, rounds=1)


def select(names: list[str], size: Callable[[Scene], Scene] = lambda scene: scene) -> list[Scene]:
    """The scenes whose names begin with one of `names`, in that size; all of them when there is none.

    Raises:
        ValueError: naming what is known, when a name fits no scene.
    """
    for name in names:
        if not any(scene.name.startswith(name) for scene in FULL):
            raise ValueError(f"no scene {name!r}; known: {', '.join(scene.name for scene in FULL)}")
    return [size(scene) for scene in FULL if not names or any(scene.name.startswith(name) for name in names)]
