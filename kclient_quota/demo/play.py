"""Plays scenes: a process per flavour, all at once, their words collected."""

import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial

from kclient_quota.demo.scenes import Finding, Scene, judge
from kclient_quota.demo.spec import FLAVOURS, Outcome, Sample, WorkSpec, parse_line
from kclient_quota.demo.stage import Stage
from kclient_quota.errors import KclientQuotaError
from kclient_quota.testing.children import Children

# A worker that has not ended this long after its time is stuck in its client; on a busy machine it begins late.
GRACE_S = 60.0


class Worker:
    """One running worker process.

    Args:
        spec: its job.
        on_sample: called with all samples so far whenever one arrives, in the worker's reader thread.
    """

    def __init__(self, spec: WorkSpec, on_sample: Callable[[list[Sample]], None]) -> None:
        self._name = f"{spec.flavour} {spec.role}"
        self.samples: list[Sample] = []
        self.outcome: Outcome | None = None
        self._on_sample = on_sample
        self._process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
            [sys.executable, "-m", "kclient_quota.demo.worker", spec.to_json()],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._stderr = ""
        self._readers = [threading.Thread(target=read, daemon=True) for read in (self._read, self._read_stderr)]
        for reader in self._readers:
            reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            told = parse_line(line)
            if isinstance(told, Sample):
                self.samples.append(told)
                self._on_sample(self.samples)
            elif isinstance(told, Outcome):
                self.outcome = told

    def _read_stderr(self) -> None:
        assert self._process.stderr is not None
        self._stderr = self._process.stderr.read()

    def finish(self, deadline: float) -> Outcome:
        """Wait until `deadline` (of time.monotonic) and return the outcome.

        Raises:
            KclientQuotaError: the worker ended without one.
        """
        ended = "ended"
        try:
            self._process.wait(max(deadline - time.monotonic(), 0.1))
        except subprocess.TimeoutExpired:
            self.kill()
            ended = f"had not ended {GRACE_S:.0f} s after its time and was killed"
        for reader in self._readers:
            reader.join(5)
        if self.outcome is None:
            last_words = self._stderr.strip().splitlines()[-1:] or ["it said nothing"]
            raise KclientQuotaError(
                f'the worker "{self._name}" {ended}, without a result; its last words: {last_words[0]}'
            )
        return self.outcome

    def kill(self) -> None:
        """End it at once."""
        self._process.kill()
        self._process.wait()


def play(stage: Stage, scene: Scene, children: Children, show: Callable[[str, list[Sample]], None]) -> list[Finding]:
    """Play one scene with all flavours at the same time and judge them; their processes are among `children`."""
    workers: dict[str, Worker] = {}
    try:
        for flavour in FLAVOURS:
            begin = partial(Worker, scene.specs[flavour], partial(show, flavour))
            workers[flavour] = children.start(begin, Worker.kill)
        deadline = time.monotonic() + scene.seconds + GRACE_S
        outcomes = {flavour: worker.finish(deadline) for flavour, worker in workers.items()}
    finally:
        for worker in workers.values():
            worker.kill()
        for flavour in FLAVOURS:
            stage.set_quota(
                scene.specs[flavour].producer_conf.get("client.id") or scene.specs[flavour].conf["client.id"],
                scene.quota_key,
                None,
            )
    return [judge(stage, scene, flavour, outcomes[flavour], workers[flavour].samples) for flavour in FLAVOURS]
