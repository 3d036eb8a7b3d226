"""The three scenes: what each sets up, how every flavour plays it, and what is found afterwards."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from kclient_quota.demo.spec import FLAVOURS, TUNED, Outcome, Sample, WorkSpec
from kclient_quota.demo.stage import Stage

LATE_MS = 5_000
"""A wait that somebody notices: a verdict speaks of longer ones."""
_OVER, _UNDER = 1.05, 0.9
_EVERYDAY_QUEUE = 16_384


def tuned_producer(quota: float, message_bytes: int) -> dict[str, Any]:
    """What an expert sets by hand for this quota and this size of message; it fits no other."""
    return {
        "enable.idempotence": True,
        "max.in.flight.requests.per.connection": 1,
        "linger.ms": 100,
        "queue.buffering.max.messages": max(20, int(quota / message_bytes)),
        "batch.size": max(_EVERYDAY_QUEUE, int(quota / 10)),
        "request.timeout.ms": 60_000,
    }


def tuned_consumer(quota: float) -> dict[str, Any]:
    """The same for a consumer: fetches of a fifth of a second, and a queue that holds no more than one."""
    fetch = max(_EVERYDAY_QUEUE, int(quota / 5))
    return {
        "fetch.message.max.bytes": fetch,
        "fetch.max.bytes": fetch,
        "message.max.bytes": fetch,
        "queued.max.messages.kbytes": max(1, fetch // 1024),
        "fetch.queue.backoff.ms": 100,
    }


@dataclass(frozen=True, slots=True)
class Scene:
    """One comparison.

    Attributes:
        name: short name, used in files.
        title: one line for people.
        story: what happens and which settings all flavours share.
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
        flavour: one of `FLAVOURS`.
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
        tuning = tuned_producer(quota, 1_000) if flavour == TUNED else {}
        conf = {"bootstrap.servers": stage.bootstrap_servers, "client.id": client_id, **tuning}
        return WorkSpec("produce", flavour, conf, topic, seconds, backlog, 1_000, input_file=input_file)

    return _scene(
        stage,
        run_id,
        "producers",
        "a. Producers with a backlog",
        f"{backlog:,} messages of 1 kB to send, more than the quota lets through; time-outs are the defaults.",
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
            **(tuned_consumer(quota) if flavour == TUNED else {}),
        }
        return WorkSpec("consume", flavour, conf, topic, seconds, messages)

    return _scene(
        stage,
        run_id,
        "consumers",
        "b. Consumers that catch up",
        f"A topic of {messages:,} messages of 1 kB in batches of {per_batch}.",
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
        tuning = tuned_producer(quota, 1_000) if flavour == TUNED else {}
        producer_conf = {"bootstrap.servers": stage.bootstrap_servers, "client.id": client_id, **tuning}
        return WorkSpec(
            "transform", flavour, conf, source, seconds, messages, output_topic=output, producer_conf=producer_conf
        )

    return _scene(
        stage,
        run_id,
        "transforms",
        "c. Consume, transform, produce (max.poll.interval.ms 6 s)",
        "A group whose producer is over its quota. The documented loop: poll, produce, every 250 messages flush and "
        "commit; max.poll.interval.ms and session.timeout.ms are set to 6 s for all.",
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


def verdict(scene: Scene, finding: Finding) -> str:
    """What a reader should know first: what was lost, doubled and late, then how much of the quota was used."""
    outcome = finding.outcome
    bad = [
        text
        for counted, text in (
            (finding.lost, f"lost {finding.lost:,}"),
            (finding.duplicates, f"stored {finding.duplicates:,} twice"),
            (outcome.rebalances, f"lost its group {_times(outcome.rebalances)}"),
        )
        if counted
    ]
    longest_ms = max(outcome.latencies_ms[2], outcome.oldest_pending_ms)
    if longest_ms > LATE_MS:
        what = "no message for" if scene.name == "consumers" else "reports up to"
        bad.append(f"{what} {longest_ms / 1000:.0f} s{'' if scene.name == 'consumers' else ' late'}")
    good = "nothing missing, evenly" if scene.name == "consumers" else "nothing lost, doubled or late"
    used = f"{finding.share:.0%} of the quota"
    if finding.share > _OVER:
        used = f"{used}, over it: it pays with throttles"
    elif finding.share < _UNDER:
        used = f"only {used}"
    return f"{', '.join(bad) or good}; {used}"


def headline(played: Sequence[tuple[Scene, Sequence[Finding]]], flavour: str) -> str:
    """What one flavour came to in all scenes together: lost, doubled, late."""
    mine = [finding for _, findings in played for finding in findings if finding.flavour == flavour]
    groups = sum(finding.outcome.rebalances for finding in mine)
    longest_ms = max((max(f.outcome.latencies_ms[2], f.outcome.oldest_pending_ms) for f in mine), default=0)
    told = [
        f"{sum(finding.lost for finding in mine):,} lost",
        f"{sum(finding.duplicates for finding in mine):,} stored twice",
        f"waits of up to {longest_ms / 1000:.1f} s",
    ]
    return ", ".join([*told, f"the group lost {_times(groups)}"] if groups else told)


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


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
                "verdict": verdict(scene, finding),
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
                "waited_ms": finding.outcome.waited_ms,
            }
            for finding in findings
        },
    }
