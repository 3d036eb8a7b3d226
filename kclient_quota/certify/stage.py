"""Plays one scene with one driver: an embedded broker of its own, a road that is listened to, a process."""

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import IO

from kclient_quota.broker.server import EmbeddedBroker
from kclient_quota.certify.driver import ACKNOWLEDGED, CANNOT, Event, id_of, parse
from kclient_quota.certify.filling import fill
from kclient_quota.certify.readback import topic_names, values
from kclient_quota.certify.scene import Scene
from kclient_quota.certify.seen import Seen
from kclient_quota.certify.tap import Tap
from kclient_quota.certify.verdict import Grade, Verdict
from kclient_quota.errors import KclientQuotaError
from kclient_quota.testing.children import Children
from kclient_quota.testing.proxies import Proxies

_WORDS_BYTES = 4_000
_GRACE_MS = 25_000
"""How long a driver that was told to stop may take before it is killed."""
_BEGIN_MS = 20_000
"""How long a driver may take until its first word, where the scene counts from there."""
_LOOK_MS = 50


def play(scene: Scene, command: Sequence[str], children: Children | None = None) -> tuple[Verdict, Seen | None]:
    """Put the client to the scene; its process is among `children`."""
    with (
        Proxies(scene.brokers) as proxies,
        EmbeddedBroker(brokers=scene.brokers, **scene.broker) as cluster,
    ):
        cluster.create_topic(scene.name, scene.partitions, replication=scene.brokers)
        if scene.filled:
            fill(cluster.bootstrap_servers, scene.name, scene.filled, scene.assignment.value_bytes, scene.per_batch)
        direct = cluster.bootstrap_servers
        tap = Tap()
        proxies.stand_before(cluster)
        proxies.each(lambda proxy: proxy.listen(lambda number, chunk: tap.heard(number, chunk, _now_ms())))
        scene.prepare(cluster, scene.name)
        environment = {**os.environ, **scene.assignment.environment(proxies.bootstrap_servers, scene.name)}
        children = children or Children()
        run = children.start(lambda: _Run(command, environment), _Run.kill)
        second: _Run | None = None

        def start_second() -> None:
            nonlocal second
            second = children.start(lambda: _Run(command, environment), _Run.kill)

        try:
            run.drive(scene, cluster, start_second)
        finally:
            for each in filter(None, (second, run)):
                each.end()
        scene.afterwards(cluster, scene.name)
        seen = _seen(scene, cluster, direct, run, tap)
        if second is not None:
            seen.second, seen.second_started_ms = tuple(second.events), second.started_ms
    if run.failed_to_start:
        return Verdict(Grade.NOT_PLAYED, run.failed_to_start), None
    if seen.exit_status == CANNOT:
        return Verdict(
            Grade.ABSENT, seen.words.strip().splitlines()[-1][:200] if seen.words.strip() else "it cannot"
        ), seen
    if not seen.events and seen.exit_status not in {0, None, -signal.SIGKILL, -signal.SIGTERM}:
        why = run.words().strip().splitlines()[-1:] or ["it wrote no event"]
        return Verdict(
            Grade.NOT_PLAYED, f"the driver told nothing and ended with status {seen.exit_status}: {why[0][:200]}"
        ), seen
    return scene.judge(seen), seen


class _Run:
    """The driver's process and what it says."""

    def __init__(self, command: Sequence[str], environment: dict[str, str]) -> None:
        self.events: list[Event] = []
        self.nonsense: list[str] = []
        self.started_ms = _now_ms()
        self.ended_ms = self.started_ms
        self.told_ms: int | None = None
        self.failed_to_start = ""
        self._words = bytearray()
        self._process: subprocess.Popen[bytes] | None = None
        self._readers: list[threading.Thread] = []
        try:
            self._process = subprocess.Popen(  # noqa: S603 - the command is what the user asked to certify
                list(command), env=environment, stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, process_group=0,
            )  # fmt: skip
        except OSError as error:
            self.failed_to_start = f"{command[0]} cannot be started: {error}"
            return
        for stream, read in ((self._process.stdout, self._hear), (self._process.stderr, self._overhear)):
            reader = threading.Thread(target=read, args=(stream,), daemon=True)
            reader.start()
            self._readers.append(reader)

    @property
    def exit_status(self) -> int | None:
        return None if self._process is None else self._process.returncode

    def words(self) -> str:
        """The end of standard error."""
        return self._words.decode(errors="replace")

    def drive(self, scene: Scene, cluster: EmbeddedBroker, start_second: Callable[[], object]) -> None:
        """Let it work, do what is to be done meanwhile, stop it when it is time."""
        if self._process is None:
            return
        if scene.meanwhile is not None or scene.stop_after_ms is not None or scene.second_after_ms is not None:
            self._begins()
        begun_ms = self._age_ms()
        if scene.second_after_ms is not None and not self._ends_within(scene.second_after_ms):
            start_second()
        if scene.meanwhile is not None and not self._ends_within(scene.after_ms):
            scene.meanwhile(cluster, scene.name)
        if scene.stop_after_ms is not None and not self._ends_within(begun_ms + scene.stop_after_ms - self._age_ms()):
            self.told_ms = _now_ms()
            self._process.send_signal(scene.stops_by)
            self._ends_within(_GRACE_MS)
        else:
            self._ends_within(scene.within_ms - self._age_ms())

    def end(self) -> None:
        """Whatever is left of it goes."""
        if self._process is None:
            return
        self.kill()
        self._process.wait()
        self.ended_ms = _now_ms()
        for reader in self._readers:
            reader.join(5)
        for stream in (self._process.stdout, self._process.stderr):
            assert stream is not None
            stream.close()

    def kill(self) -> None:
        """End it, and what it has started, at once."""
        if self._process is not None and self._process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def _begins(self) -> None:
        """Wait for its first word: starting may take longer than some scenes."""
        while not self.events and self._age_ms() < _BEGIN_MS and not self._ends_within(_LOOK_MS):
            continue

    def _age_ms(self) -> int:
        return _now_ms() - self.started_ms

    def _ends_within(self, wait_ms: int) -> bool:
        assert self._process is not None
        try:
            self._process.wait(max(wait_ms, 0) / 1000)
        except subprocess.TimeoutExpired:
            return False
        return True

    def _hear(self, stream: IO[bytes]) -> None:
        for line in stream:
            told = parse(line.decode(errors="replace").strip(), _now_ms())
            if isinstance(told, Event):
                self.events.append(told)
            else:
                self.nonsense.append(told)

    def _overhear(self, stream: IO[bytes]) -> None:
        for line in stream:
            self._words += line
            del self._words[:-_WORDS_BYTES]


def _log(servers: str, topic: str) -> list[list[int]]:
    """The ids in each partition."""
    try:
        return [[id_of(value) for value in partition] for partition in values(servers, topic)]
    except KclientQuotaError:
        return []


def _seen(scene: Scene, cluster: EmbeddedBroker, direct: str, run: _Run, tap: Tap) -> Seen:
    acknowledged = {event.id for event in run.events if event.kind == ACKNOWLEDGED}
    log = _log(direct, scene.name)
    while _now_ms() < run.ended_ms + scene.settle_ms and not acknowledged <= {one for part in log for one in part}:
        time.sleep(_LOOK_MS / 1000)
        log = _log(direct, scene.name)
    return Seen(
        started_ms=run.started_ms,
        ended_ms=run.ended_ms,
        told_to_stop_ms=run.told_ms,
        exit_status=run.exit_status,
        events=tuple(run.events),
        nonsense=tuple(run.nonsense),
        words=run.words(),
        requests=[request for request in cluster.requests if (request.client_id or "").startswith(scene.name)],
        sent=tuple(tap.sent),
        log=log,
        topics=topic_names(direct),
        pushes=[(push.at_ms, push.terminating, str(push.client_instance_id)) for push in cluster.pushes],
    )


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
