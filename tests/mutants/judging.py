"""Which mutants the tests of a room notice.

The tests are collected once, in a process that no mutant touches. One child of it plays them all, to know which lines
each of them runs. Then each mutant has a child of its own, which puts the changed code in the place of the function's
and plays those tests that run the changed lines, the quickest first, up to the first failure. What is no function's
(constants, defaults), or one that ran while tests were collected, is judged by a child that has loaded nothing of ours
yet: it imports the module changed, and plays every test of the room.
"""

import ast
import gc
import importlib
import importlib.machinery
import os
import pickle
import resource
import signal
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any

import pytest

from tests.mutants.cores import SLOW
from tests.mutants.making import ROOT, Mutant, original

NOTICED, SURVIVED, ELSEWHERE = 0, 1, 2
"""How a child ends: a test failed; none did; this child cannot make the mutant."""
_PLAIN = ("-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-W", "ignore:Module already imported")
_CPU_S, _FIVE_MINUTES_S, _BYTES = 5, 300, 4 << 30
"""A mutant whose tests work for five seconds longer than twice the usual goes round in circles: that is noticed."""


@dataclass
class Known:
    """What a room's tests do without a mutant."""

    ran: dict[str, dict[int, set[str]]] = field(default_factory=dict)
    """Module to line to tests."""
    cpu_s: dict[str, float] = field(default_factory=dict)

    def of(self, path: str, lines: Iterable[int]) -> list[str]:
        """The tests that run one of these lines, the quickest first."""
        ran = self.ran.get(path, {})
        return sorted(set().union(*(ran.get(line, ()) for line in lines)), key=lambda test: self.cpu_s[test])

    def all_of(self, path: str) -> list[str]:
        """Those that run much of a module first, the quickest of them first; then all others."""
        score: dict[str, int] = defaultdict(int)
        for tests in self.ran.get(path, {}).values():
            for test in tests:
                score[test] += 1
        return sorted(self.cpu_s, key=lambda test: (self.cpu_s[test] + 0.01) / (score[test] + 0.01))


def noticed(mutants: Sequence[Mutant], tests: Sequence[str], processes: int) -> list[bool]:
    """For each of the mutants of one room whether its tests notice it."""
    known, found = _in_child(lambda: _collected(mutants, tests, processes))
    again = [mutant for mutant, end in zip(mutants, found, strict=True) if end == ELSEWHERE]
    later = iter(_side_by_side([_anew(mutant, tests, known) for mutant in again], processes))
    return [(next(later) if end == ELSEWHERE else end) == NOTICED for end in found]


def _collected(mutants: Sequence[Mutant], tests: Sequence[str], processes: int) -> tuple[Known, list[int]]:
    """Play as a session of pytest that has collected the tests and, in place of running them, judges."""
    session = _Session(mutants, processes)
    code = pytest.main([*tests, *_PLAIN], plugins=[session, _Quick()])
    if session.result is None:
        raise SystemExit(f"the tests fail without a mutant ({code}): {' '.join(tests)}")
    return session.result


class _Quick:
    """Leaves out the simulations of seconds."""

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = [item for item in items if not any(word in item.name for word in SLOW)]


class _Session:
    """Judges what can be judged in place."""

    def __init__(self, mutants: Sequence[Mutant], processes: int) -> None:
        self._mutants = mutants
        self._processes = processes
        self.result: tuple[Known, list[int]] | None = None
        self._early: set[tuple[str, int]] = set()
        sys.setprofile(self._note)

    def _note(self, frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            self._early.add((frame.f_code.co_filename, frame.f_code.co_firstlineno))

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        sys.setprofile(None)
        paths = {mutant.path for mutant in self._mutants}
        known = _in_child(lambda: _watched(session, paths))
        if known is not None:
            items = {item.nodeid: item for item in session.items}
            functions = _functions({str(ROOT / path) for path in paths})
            functions = {key: ones for key, ones in functions.items() if (key[0], key[2]) not in self._early}
            plays = [_in_place(mutant, known, items, functions) for mutant in self._mutants]
            self.result = known, _side_by_side(plays, self._processes)
        return True


def _watched(session: pytest.Session, paths: set[str]) -> Known | None:
    """Play every test and see what it runs; None if one fails."""
    from coverage import Coverage

    known = Known()
    with _silence():
        seen = Coverage(data_file=None, config_file=False, include=[str(ROOT / path) for path in paths])
        seen.start()
        for item in session.items:
            seen.switch_context(item.nodeid)
            begin = time.process_time()
            _run(item)
            known.cpu_s[item.nodeid] = time.process_time() - begin
        seen.stop()
    if session.testsfailed:
        return None
    for path in paths:
        found = seen.get_data().contexts_by_lineno(str(ROOT / path))
        known.ran[path] = {line: {test for test in tests if test} for line, tests in found.items()}
    return known


def _run(item: pytest.Item) -> None:
    item.config.hook.pytest_runtest_protocol(item=item, nextitem=None)


def _in_place(
    mutant: Mutant, known: Known, items: dict[str, pytest.Item], functions: dict[Any, list[FunctionType]]
) -> Callable[[], int]:
    """What a child does that finds the tests collected."""

    def play() -> int:
        changed = _changed(mutant)
        if changed is None or not changed.keys() <= functions.keys():
            return ELSEWHERE
        for key, code in changed.items():
            for function in functions[key]:
                function.__code__ = code
        tests = known.of(mutant.path, _lines(mutant))
        _bound(sum(known.cpu_s[test] for test in tests))
        for test in tests:
            _run(items[test])
            if items[test].session.testsfailed:
                return NOTICED
        return SURVIVED

    return play


def _functions(files: set[str]) -> dict[Any, list[FunctionType]]:
    found = defaultdict(list)
    for one in gc.get_objects():
        if isinstance(one, FunctionType) and one.__code__.co_filename in files:
            found[_key(one.__code__)].append(one)
    return found


def _key(code: CodeType) -> tuple[str, str, int]:
    return code.co_filename, code.co_qualname, code.co_firstlineno


def _changed(mutant: Mutant) -> dict[Any, CodeType] | None:
    """The functions that are not what they were; None if something else changed."""
    file = str(ROOT / mutant.path)
    before, after = (_parts(compile(text, file, "exec")) for text in (original(mutant.path), mutant.source))
    if before[0] != after[0] or before[1].keys() != after[1].keys():
        return None
    return {key: code for key, code in after[1].items() if code != before[1][key]}


def _parts(module: CodeType) -> tuple[list[Any], dict[Any, CodeType]]:
    """What runs when a module is imported, and the functions that it makes."""
    outside: list[Any] = []
    functions = {}
    bodies = [module]
    for body in bodies:
        inner = [part for part in body.co_consts if isinstance(part, CodeType)]
        rest = [repr(part) for part in body.co_consts if not isinstance(part, CodeType)]
        outside.append((_key(body), body.co_code, body.co_names, rest))
        for part in inner:
            if part.co_flags & 2 or part.co_name.startswith("<"):  # inspect.CO_NEWLOCALS: a function's, not a class's
                functions[_key(part)] = part
            else:
                bodies.append(part)
    return outside, functions


def _lines(mutant: Mutant) -> set[int]:
    """The lines of the innermost statement that differs, of a compound one its head."""
    before, after = original(mutant.path).splitlines(), mutant.source.splitlines()
    if len(before) != len(after):
        return set(range(1, len(before) + 1))
    differ = {number for number, (one, two) in enumerate(zip(before, after, strict=True), 1) if one != two}
    spans = []
    for node in ast.walk(ast.parse(original(mutant.path))):
        if isinstance(node, ast.stmt):
            body = getattr(node, "body", None)
            end = max(node.lineno, body[0].lineno - 1) if body else node.end_lineno or node.lineno
            spans.append(set(range(node.lineno, end + 1)))
    return set().union(*(min((span for span in spans if one in span), key=len, default={one}) for one in differ))


def _anew(mutant: Mutant, tests: Sequence[str], known: Known) -> Callable[[], int]:
    """What a child does that has loaded nothing of ours."""

    def play() -> int:
        _bound(sum(known.cpu_s.values()))
        changed, source = str(ROOT / mutant.path), mutant.source
        usual = importlib.machinery.SourceFileLoader.get_code

        def get_code(loader: Any, name: str) -> Any:
            return compile(source, changed, "exec") if loader.path == changed else usual(loader, name)

        importlib.machinery.SourceFileLoader.get_code = get_code  # type: ignore[method-assign]
        importlib.import_module(mutant.path.removeprefix("telemetry/").removesuffix(".py").replace("/", "."))
        place = {test: index for index, test in enumerate(known.all_of(mutant.path))}

        class Ordered(_Quick):
            def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
                super().pytest_collection_modifyitems(items)
                items.sort(key=lambda item: place.get(item.nodeid, len(place)))

        return SURVIVED if pytest.main([*tests, *_PLAIN], plugins=[Ordered()]) == 0 else NOTICED

    return play


def _bound(usual_s: float) -> None:
    limit = int(2 * usual_s + time.process_time()) + _CPU_S
    resource.setrlimit(resource.RLIMIT_CPU, (limit, limit))
    resource.setrlimit(resource.RLIMIT_AS, (_BYTES, _BYTES))
    signal.alarm(_FIVE_MINUTES_S)


def _side_by_side(plays: Sequence[Callable[[], int]], processes: int) -> list[int]:
    """How each of them ends in a child of its own; one that dies has noticed."""
    ends = [NOTICED] * len(plays)
    running: dict[int, int] = {}

    def wait() -> None:
        child, status = os.wait()
        code = os.waitstatus_to_exitcode(status)
        ends[running.pop(child)] = code if code in {SURVIVED, ELSEWHERE} else NOTICED

    for number, play in enumerate(plays):
        if len(running) >= processes:
            wait()
        child = os.fork()
        if child == 0:
            end = NOTICED
            try:
                with _silence():
                    end = play()
            finally:
                os._exit(end)
        running[child] = number
    while running:
        wait()
    return ends


def _in_child(work: Callable[[], Any]) -> Any:
    """What `work` returns, which leaves nothing behind in this process."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        end = 1
        try:
            with os.fdopen(writer, "wb") as pipe:
                pipe.write(pickle.dumps(work()))
            end = 0
        finally:
            sys.stderr.flush()
            os._exit(end)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        told = pipe.read()
    _, status = os.waitpid(child, 0)
    if os.waitstatus_to_exitcode(status) != 0:
        raise SystemExit("the tests cannot be played without a mutant")
    return pickle.loads(told)


@contextmanager
def _silence() -> Iterator[None]:
    """Of what pytest says of each test."""
    kept = os.dup(1), os.dup(2)
    with Path(os.devnull).open("w") as nowhere:
        os.dup2(nowhere.fileno(), 1)
        os.dup2(nowhere.fileno(), 2)
    try:
        yield
    finally:
        for number, descriptor in enumerate(kept, 1):
            os.dup2(descriptor, number)
