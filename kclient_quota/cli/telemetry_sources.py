"""Where commands find what clients push: a topic of pushes, or a page for Prometheus (the embedded broker's, too)."""

import argparse
import re
from typing import TYPE_CHECKING, Any

from kclient_quota.cli.printing import warn
from kclient_quota.cli.quota_options import configuration
from kclient_quota.cli.telemetry_page import page_source
from kclient_quota.clock import SYSTEM_CLOCK, unix_ms
from kclient_quota.errors import ClusterError, ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from logging import Logger, LogRecord

    from kclient_telemetry.receiver.fanout import ReceivedPush

    from kclient_quota.clients import KafkaError, TopicPartition
    from kclient_quota.clients.consumer import Consumer
    from kclient_quota.operate.top import Sample
    from kclient_quota.operate.topic_receiver import TopicReceiver

    Take = Callable[[Sample], None]
    Source = tuple[Callable[[float], None], Callable[[], None]]
    """Look for so many seconds; close."""

_AGAIN_S = 60
"""What librdkafka says again within so long is not printed again."""
_SLICE_MS = 100
_QUESTION_MS = 1_000
"""For so long one question to the cluster may take: Ctrl-C is heard in between."""
_BEGIN_MS = 60_000
"""How much longer than it was told to somebody who looks once waits for a group, and for the end of a topic."""


def add_source_arguments(parser: argparse.ArgumentParser, *, required: bool) -> None:
    """`--from-topic` and `--prometheus`."""
    source = parser.add_mutually_exclusive_group(required=required)
    source.add_argument("--from-topic", metavar="NAME", help="a topic of pushes, on the cluster")
    source.add_argument(
        "--prometheus",
        metavar="URL",
        help="the page of `receive --metrics-port` or `broker --metrics-port`, such as http://127.0.0.1:9464/metrics",
    )


def opened(
    options: argparse.Namespace,
    take: "Take",
    stopped: "Callable[[], bool]",
    *,
    whole: bool,
    trouble: "Callable[[str], None] | None" = None,
) -> "Source":
    """The source that the options name.

    Args:
        options: with those of `add_source_arguments` and of the cluster.
        take: given every sample.
        stopped: whether looking shall end early.
        whole: a topic from its beginning, for who looks once.
        trouble: for who goes on looking: told why a page that has been read cannot be read any more, with "" once it
            can again; otherwise that ends a look with a ClusterError.

    Raises:
        ConfigError: an option cannot be used.
    """
    if options.prometheus:
        return page_source(options.prometheus, take, stopped, trouble)
    return _topic(options, take, stopped, whole=whole)


def _topic(options: argparse.Namespace, take: "Take", stopped: "Callable[[], bool]", *, whole: bool) -> "Source":
    from kclient_quota.operate.topic_receiver import Sink, TopicReceiver  # noqa: PLC0415 - slow to load for --help

    conf = {
        "group.id": f"kclient-quota-watch-{unix_ms()}",
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest" if whole else "latest",
    }
    consumer, is_joined = subscribed(options, conf, stopped)

    def accept(push: "ReceivedPush") -> None:
        for sample in _samples(push):
            take(sample)

    receiver = TopicReceiver(consumer, [Sink(accept, lambda: (0, 0))], SYSTEM_CLOCK, is_joined)

    def look(interval_s: float) -> None:
        end_ms = SYSTEM_CLOCK.now_ms() + round(interval_s * 1000)
        last_ms, next_ms = end_ms + (_BEGIN_MS if whole else 0), end_ms

        def is_over() -> bool:
            nonlocal next_ms
            if stopped():
                return True
            if (now_ms := SYSTEM_CLOCK.now_ms()) < next_ms:
                return False
            next_ms = now_ms + _SLICE_MS
            if not whole or receiver.has_caught_up():
                return True
            if now_ms < last_ms:
                return False
            within_s = interval_s + _BEGIN_MS / 1000
            warn(f"the end of {options.from_topic} was not reached within {within_s:g} s: later pushes are not shown")
            return True

        receiver.run(is_over)

    return look, consumer.close


def subscribed(
    options: argparse.Namespace,
    conf: dict[str, Any],
    stopped: "Callable[[], bool]",
    receivers: "Sequence[TopicReceiver]" = (),
    *,
    new_at_end: bool = False,
) -> "tuple[Consumer, Callable[[], bool]]":
    """A consumer of the topic that the options name, on a cluster that has answered, for a `TopicReceiver`.

    Args:
        options: with `from_topic` and those of the cluster.
        conf: beside the connection's.
        stopped: whether asking shall end early.
        receivers: who reads from it, to be told of partitions that are taken away; may be filled afterwards.
        new_at_end: begin at the end where the group has read nothing yet. `auto.offset.reset=latest` would do so, too,
            where what it has not read has been deleted, and pass over all that is still there.

    Returns:
        the consumer, and whether its group has given it its partitions; where there is no topic it waits for none.

    Raises:
        ClusterError: no broker answers within `--timeout`, or the topic may not be read.
        ConfigError: no topic can have its name.
    """
    import threading  # noqa: PLC0415 - as below

    from kclient_quota.clients import KafkaError  # noqa: PLC0415 - librdkafka is slow to load for --help
    from kclient_quota.clients.consumer import Consumer  # noqa: PLC0415 - as above

    # telemetry is switched off, or it would receive what it pushes about receiving
    errors = _Errors(logger := _librdkafka_logger())
    own = {"enable.metrics.push": False, "enable.partition.eof": True, "logger": logger, "error_cb": errors.hear}
    consumer = Consumer({**configuration(options), **own, **conf})
    joined = threading.Event()
    try:
        problem = _asked(consumer, options, stopped, errors)
        if problem is not None and problem.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            warn(f"there is no topic {options.from_topic} yet; waiting for it")
            joined.set()
        elif new_at_end and not stopped():
            _begin_new_at_end(consumer, options, stopped)

        def revoked(_consumer: "Consumer", partitions: "list[TopicPartition]") -> None:
            joined.clear()
            for receiver in receivers:
                receiver.hand_over(partitions)

        def lost(_consumer: "Consumer", partitions: "list[TopicPartition]") -> None:
            joined.clear()
            for receiver in receivers:
                receiver.forget(partitions)

        consumer.subscribe([options.from_topic], on_assign=lambda *_: joined.set(), on_revoke=revoked, on_lost=lost)
    except BaseException:
        consumer.close()
        raise
    return consumer, joined.is_set


class _Errors:
    """What librdkafka tells who polls: kept while no broker has answered, as the reason for it, and logged afterwards.

    Args:
        logger: of librdkafka's lines.

    Attributes:
        last: the last one, unless it says nothing of why.
        is_answered: whether a broker has answered.
    """

    def __init__(self, logger: "Logger") -> None:
        self._logger = logger
        self.last: KafkaError | None = None
        self.is_answered = False

    def hear(self, error: "KafkaError") -> None:
        if self.is_answered:
            self._logger.error("%s", error.str())
        elif error.name() != "_ALL_BROKERS_DOWN":
            self.last = error


def _begin_new_at_end(consumer: "Consumer", options: argparse.Namespace, stopped: "Callable[[], bool]") -> None:
    """Have a group that has read nothing of the topic begin at its end, and note that in the group.

    Whoever joins it finds the place, however little has come until then; and a partition without one is a new one, to
    be read from its beginning. It is noted before anybody joins: two who begin at once note the same.

    Raises:
        ClusterError: the group, or the topic, may not be read.
    """
    from kclient_quota.clients import KafkaError, KafkaException  # noqa: PLC0415 - as above
    from kclient_quota.operate.topic_receiver import unreadable  # noqa: PLC0415 - as above

    try:
        _note_ends_of_new(consumer, options.from_topic, options.timeout, stopped)
    except KafkaException as error:
        if error.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            raise unreadable(error.args[0]) from error
        if error.args[0].code() != KafkaError.UNKNOWN_MEMBER_ID:  # the group has members, so it has begun
            warn(f"where the group has read to is not known, all that is there is read where it has not: {error}")


def _note_ends_of_new(consumer: "Consumer", topic: str, timeout_s: float, stopped: "Callable[[], bool]") -> None:
    from kclient_quota.clients import OFFSET_END, KafkaException, TopicPartition  # noqa: PLC0415 - as above

    numbers = consumer.list_topics(topic, timeout_s).topics[topic].partitions
    known = _committed(consumer, [TopicPartition(topic, number) for number in numbers], timeout_s, stopped)
    for part in known:
        if part.error is not None:
            raise KafkaException(part.error)
    if known and all(part.offset < 0 for part in known):
        ends = consumer.offsets_for_times([TopicPartition(topic, number, OFFSET_END) for number in numbers], timeout_s)
        consumer.commit(offsets=ends, asynchronous=False)


def _committed(
    consumer: "Consumer", parts: "list[TopicPartition]", timeout_s: float, stopped: "Callable[[], bool]"
) -> "list[TopicPartition]":
    """Where the group has read to, in slices that Ctrl-C can end; nowhere then.

    Raises:
        ClusterError: the group may not be read: librdkafka tells that to who polls, and asks on.
    """
    from kclient_quota.clients import KafkaError, KafkaException  # noqa: PLC0415 - as above
    from kclient_quota.operate.topic_receiver import unreadable  # noqa: PLC0415 - as above

    end_ms = SYSTEM_CLOCK.now_ms() + round(timeout_s * 1000)
    while not stopped():
        left_ms = end_ms - SYSTEM_CLOCK.now_ms()
        try:
            return consumer.committed(parts, _question_s(left_ms))
        except KafkaException as error:
            message = consumer.poll(0)
            problem = message.error() if message is not None else None
            if problem is not None and problem.code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
                raise unreadable(problem) from error
            if left_ms <= _QUESTION_MS or error.args[0].code() != KafkaError._TIMED_OUT:  # noqa: SLF001 - its name
                raise
    return []


def _question_s(left_ms: int) -> float:
    return max(1, min(_QUESTION_MS, left_ms)) / 1000


def _librdkafka_logger() -> "Logger":
    """For librdkafka's lines: it has one for each try to connect, 60 in a minute, all alike but for their times."""
    import logging  # noqa: PLC0415 - slow to load for --help

    logger = logging.getLogger("kclient_quota.librdkafka")
    if not logger.filters:
        logger.addFilter(_seldom())
    return logger


def _seldom() -> "Callable[[LogRecord], bool]":
    """Lets a line through that has not been there for a while."""
    told: dict[str, float] = {}

    def is_due(record: "LogRecord") -> bool:
        text = re.sub(r"\(after .*", "", record.getMessage())
        if record.created - told.get(text, -_AGAIN_S) < _AGAIN_S:
            return False
        told[text] = record.created
        return True

    return is_due


def check_topic(consumer: "Consumer", options: argparse.Namespace) -> None:
    """After nothing was read: was there something to read?

    Raises:
        ClusterError: there is still no such topic.
    """
    from kclient_quota.clients import KafkaError, KafkaException  # noqa: PLC0415 - as above

    try:
        problem = consumer.list_topics(options.from_topic, options.timeout).topics[options.from_topic].error
    except KafkaException as error:
        raise ClusterError(f"nothing was read, and the cluster no longer answers: {error}") from error
    if problem is not None and problem.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
        raise ClusterError(
            f"there is no topic {options.from_topic}: nothing was read; check --from-topic, or have it made first",
            error_code=problem.code(),
        )


def _asked(
    consumer: "Consumer", options: argparse.Namespace, stopped: "Callable[[], bool]", errors: _Errors
) -> "KafkaError | None":
    """What the cluster says of the topic, in slices that Ctrl-C can end.

    Args:
        consumer: asks.
        options: with `from_topic` and those of the cluster.
        stopped: whether asking shall end early.
        errors: are told to who polls.

    Raises:
        ClusterError: nothing within `--timeout`, or that it may not be read; other errors may pass.
        ConfigError: no topic can have its name.
    """
    from kclient_quota.clients import KafkaError, KafkaException  # noqa: PLC0415 - as above

    end_ms = SYSTEM_CLOCK.now_ms() + round(options.timeout * 1000)
    while not stopped():
        left_ms = end_ms - SYSTEM_CLOCK.now_ms()
        try:
            metadata = consumer.list_topics(options.from_topic, _question_s(left_ms))
        except KafkaException as error:
            consumer.poll(0)
            is_refused = errors.last is not None and errors.last.name() == "_AUTHENTICATION"
            if is_refused or left_ms <= _QUESTION_MS:
                raise _unanswered(options, errors.last, is_refused=is_refused) from error
        else:
            errors.is_answered = True
            problem: KafkaError | None = metadata.topics[options.from_topic].error
            if problem is not None and problem.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                why = (
                    f"{options.from_topic} cannot be read: {problem.str()}; allow the principal to describe and read it"
                )
                raise ClusterError(why, error_code=problem.code())
            is_pattern = options.from_topic.startswith("^")
            if problem is not None and problem.code() == KafkaError.TOPIC_EXCEPTION and not is_pattern:
                raise ConfigError(f"--from-topic {options.from_topic}: no topic can have this name; name one topic")
            return problem
    return None


def _unanswered(options: argparse.Namespace, reason: "KafkaError | None", *, is_refused: bool) -> ClusterError:
    servers, why = configuration(options)["bootstrap.servers"], "" if reason is None else f": {reason.str()}"
    if is_refused:
        return ClusterError(f"{servers} refused the credentials{why}; check those in --command-config")
    return ClusterError(
        f"{servers} did not answer within {options.timeout:g} s{why}; check --bootstrap-server and, in "
        "--command-config, security.protocol"
    )


def _samples(push: "ReceivedPush") -> "Iterator[Sample]":
    from kclient_telemetry.receiver.rows import series_of, text_attributes  # noqa: PLC0415 - as above

    from kclient_quota.operate.top import Sample  # noqa: PLC0415 - as above

    who, at_ms = push.attributes, min(push.received_unix_ms, unix_ms())  # or it would stay for long
    for series in series_of(push):
        yield Sample(
            who.get("client_instance_id", ""),
            who.get("client_id", ""),
            who.get("principal", "").removeprefix("User:"),
            series.metric.name,
            text_attributes(series.point.attributes),
            series.value,
            at_ms,
            series.delta,
        )
