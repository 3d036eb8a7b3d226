"""The three scenes: what each sets up, how both flavours play it, and what is found afterwards."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from kclient_quota.demo.spec import FLAVOURS, Outcome, Sample, WorkSpec
from kclient_quota.demo.stage import Stage

TIMEOUTS = {"message.timeout.ms": 12_500, "socket.timeout.ms": 2_500}
"""librdkafka's defaults (300 s and 60 s) divided by 24, so that seconds show what minutes do; for both flavours."""


@dataclass(frozen=True, slots=True)
class Scene:
    """One comparison.

    Attributes:
        name: short name, used in files.
        title: one line for people.
        story: what happens and which settings both flavours share.
        quota_key: the quota that is set for each flavour's own client-id.
        quota: its value.
        seconds: how long it plays.
        specs: one job per flavour.
    """

    name: str
    title: str
    story: str
    quota_key: str
    quota: float
    seconds: float
    specs: dict[str, WorkSpec]


@dataclass(frozen=True, slots=True)
class Finding:
    """What one flavour came to in one scene.

    Attributes:
        flavour: "plain" or "wrapped".
        outcome: the worker's own account.
        share: payload bytes done, over the quota times the scene's length.
        lost: messages reported as failed, or never answered, that are not stored either (produce).
        reported_lost_but_stored: reported as failed or unanswered, yet stored.
        duplicates: copies beyond the first that are stored.
        samples: the worker's samples.
    """

    flavour: str
    outcome: Outcome
    share: float
    lost: int
    reported_lost_but_stored: int
    duplicates: int
    samples: list[Sample] = field(default_factory=list)


def plan(
    stage: Stage, run_id: str, *, seconds: float, quota: float, input_file: str | None, names: Sequence[str]
) -> Iterator[Scene]:
    """Set up and yield the scenes of these names one after another; each is set up only when it is asked for."""
    builders = {"producers": _producers, "consumers": _consumers, "transforms": _transforms}
    for name in names:
        yield builders[name](stage, run_id, seconds, quota, input_file)


def _producers(stage: Stage, run_id: str, seconds: float, quota: float, input_file: str | None) -> Scene:
    # More than the quota lets through, and more than librdkafka puts into a few requests of 1 MB.
    backlog = max(5_000, int(3 * quota * seconds / 1_000))

    def spec(flavour: str, client_id: str) -> WorkSpec:
        topic = f"{run_id}-out-{flavour}"
        stage.create_topic(topic, 1)
        conf = {"bootstrap.servers": stage.bootstrap_servers, "client.id": client_id, **TIMEOUTS}
        return WorkSpec("produce", flavour, conf, topic, seconds, backlog, 1_000, input_file=input_file)

    return _scene(
        stage,
        run_id,
        "producers",
        "a. Producers with a backlog",
        f"{backlog:,} messages of 1 kB to send; message.timeout.ms and socket.timeout.ms are librdkafka's defaults "
        "divided by 24, for both. A broker takes every request whole and mutes afterwards: requests of 1 MB and "
        "reconnecting overdraw a quota first, and the throttle grows accordingly.",
        "producer_byte_rate",
        quota,
        seconds,
        spec,
    )


def _consumers(stage: Stage, run_id: str, seconds: float, quota: float, _input_file: str | None) -> Scene:
    topic = f"{run_id}-in"
    stage.create_topic(topic, 1)
    # Batches of a tenth of a second's quota at most: what a producer under a like quota would have written.
    per_batch = max(1, int(quota * 0.16 / 1_000))
    messages = int(3 * quota * seconds / 1_000)
    stage.preload(topic, messages, 1_000, per_batch)

    def spec(flavour: str, client_id: str) -> WorkSpec:
        conf = {
            "bootstrap.servers": stage.bootstrap_servers,
            "client.id": client_id,
            "group.id": client_id,
            "auto.offset.reset": "earliest",
        }
        return WorkSpec("consume", flavour, conf, topic, seconds, messages)

    return _scene(
        stage,
        run_id,
        "consumers",
        "b. Consumers that catch up",
        f"A topic of {messages:,} messages in batches of {per_batch}; default settings.",
        "consumer_byte_rate",
        quota,
        seconds,
        spec,
    )


def _transforms(stage: Stage, run_id: str, seconds: float, quota: float, _input_file: str | None) -> Scene:
    source = f"{run_id}-source"
    stage.create_topic(source, 1)
    messages = int(3 * quota * seconds / 1_000)
    stage.preload(source, messages, 1_000, 100)

    def spec(flavour: str, client_id: str) -> WorkSpec:
        output = f"{run_id}-sink-{flavour}"
        stage.create_topic(output, 1)
        group = {"max.poll.interval.ms": 6_000, "session.timeout.ms": 6_000, "enable.auto.commit": False}
        conf = {
            "bootstrap.servers": stage.bootstrap_servers,
            "client.id": f"{client_id}-reader",
            "group.id": client_id,
            "auto.offset.reset": "earliest",
            **group,
        }
        producer_conf = {"bootstrap.servers": stage.bootstrap_servers, "client.id": client_id}
        return WorkSpec(
            "transform", flavour, conf, source, seconds, messages, output_topic=output, producer_conf=producer_conf
        )

    return _scene(
        stage,
        run_id,
        "transforms",
        "c. Consume, transform, produce: a group whose producer is throttled",
        "The documented loop: poll, produce, every 250 messages flush and commit; max.poll.interval.ms 6 s, "
        "session.timeout.ms 6 s.",
        "producer_byte_rate",
        quota,
        seconds,
        spec,
    )


def _scene(
    stage: Stage,
    run_id: str,
    name: str,
    title: str,
    story: str,
    quota_key: str,
    quota: float,
    seconds: float,
    spec: Callable[[str, str], WorkSpec],
) -> Scene:
    specs = {}
    for flavour in FLAVOURS:
        client_id = f"{run_id}-{name}-{flavour}"
        stage.set_quota(client_id, quota_key, quota)
        specs[flavour] = spec(flavour, client_id)
    return Scene(name, title, story, quota_key, quota, seconds, specs)


def judge(stage: Stage, scene: Scene, flavour: str, outcome: Outcome, samples: list[Sample]) -> Finding:
    """Compare what a worker was told with what the log holds."""
    spec = scene.specs[flavour]
    stored: Counter[int] = Counter()
    if spec.role != "consume":
        stored = stage.stored_ids(spec.output_topic or spec.topic)
    acknowledged = {number for first, end in outcome.acknowledged_ids for number in range(first, end)}
    missing = sum(1 for number in acknowledged if number not in stored) if spec.role != "consume" else 0
    unreported = sum(1 for number in stored if number not in acknowledged)
    return Finding(
        flavour=flavour,
        outcome=outcome,
        share=outcome.payload_bytes / (scene.quota * scene.seconds),
        lost=outcome.failed + missing,
        reported_lost_but_stored=unreported,
        duplicates=sum(count - 1 for count in stored.values()),
        samples=samples,
    )


def as_json(scene: Scene, findings: list[Finding]) -> dict[str, Any]:
    """A scene for summary.json."""
    return {
        "scene": scene.name,
        "title": scene.title,
        "story": scene.story,
        "quota": {scene.quota_key: scene.quota},
        "seconds": scene.seconds,
        "findings": {
            finding.flavour: {
                "done": finding.outcome.done,
                "payload_bytes": finding.outcome.payload_bytes,
                "share_of_quota": round(finding.share, 4),
                "lost": finding.lost,
                "reported_lost_but_stored": finding.reported_lost_but_stored,
                "duplicates": finding.duplicates,
                "pending": finding.outcome.pending,
                "latency_ms": dict(zip(("p50", "p99", "max"), finding.outcome.latencies_ms, strict=True)),
                "throttle_max_ms": finding.outcome.throttle_max_ms,
                "rebalances": finding.outcome.rebalances,
            }
            for finding in findings
        },
    }
