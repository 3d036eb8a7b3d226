"""Regular expressions of subscriptions (KIP-848), matched in time that grows with the name's length alone.

Kafka uses RE2 for them: no pattern of a client's can hold up a broker. Python's `re` tries one way after the other,
which takes longer than the universe for `(a+)+b`. So the pattern is parsed by `re` and run here as an automaton that
goes all ways at once. What RE2 refuses (references, looking around, atomic groups) is refused here too.
"""

import importlib
import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

_PARSER: Any = importlib.import_module("re._parser")
_MOST_STATES = 1_000
_MOST_STEPS_KEPT = 10_000
_MOST_NAMES_KEPT = 100_000

States = frozenset[int]
_IN_CATEGORY: dict[str, Callable[[str], bool]] = {
    "CATEGORY_DIGIT": str.isdigit,
    "CATEGORY_SPACE": str.isspace,
    "CATEGORY_WORD": lambda character: character.isalnum() or character == "_",
}


class TopicPattern:
    """A compiled pattern; it is to match a whole name.

    Args:
        text: the regular expression.

    Raises:
        ValueError: it is none, is too large, or has what cannot be matched in linear time.
    """

    def __init__(self, text: str) -> None:
        try:
            tree = _PARSER.parse(text)
        except (re.error, RecursionError, OverflowError) as error:
            raise ValueError(str(error)) from error
        self._folds = bool(tree.state.flags & re.IGNORECASE)
        self._states: list[tuple[str, Any, tuple[int, ...]]] = [("match", None, ())]
        try:
            first = self._sequence(tree, 0)
        except RecursionError:
            raise ValueError("it is nested too deeply") from None
        self._first = frozenset([first])
        self._steps: dict[tuple[States, str], States] = {}
        self._names: dict[str, bool] = {}

    def matches(self, name: str) -> bool:
        """Whether the whole name is one that is meant."""
        known = self._names.get(name)
        if known is None:
            if len(self._names) >= _MOST_NAMES_KEPT:
                self._names.clear()
            known = self._names[name] = self._match(name)
        return known

    def _match(self, name: str) -> bool:
        text = name.lower() if self._folds else name
        states = self._first
        for position, character in enumerate(text):
            states = self._closure(states, is_start=True) if position == 0 else states
            key = (states, character)
            following = self._steps.get(key)
            if following is None:
                if len(self._steps) >= _MOST_STEPS_KEPT:
                    self._steps.clear()
                following = self._steps[key] = self._step(states, character)
            if not following:
                return False
            states = following
        return 0 in self._closure(states, is_start=not name, is_end=True)

    # -- running

    def _step(self, states: States, character: str) -> States:
        reached: set[int] = set()
        for state in self._closure(states):
            kind, accepts, following = self._states[state]
            if kind == "one" and accepts(character):
                reached.update(following)
        return self._closure(frozenset(reached))

    def _closure(self, states: States, *, is_start: bool = False, is_end: bool = False) -> States:
        found, todo = set(states), list(states)
        while todo:
            kind, where, following = self._states[todo.pop()]
            if kind == "any way" or (kind == "at" and (is_start if where == "start" else is_end)):
                todo += set(following) - found
                found.update(following)
        return frozenset(found)

    # -- compiling, from the end to the beginning

    def _add(self, kind: str, value: Any, *following: int) -> int:
        if len(self._states) >= _MOST_STATES:
            raise ValueError(f"it is too large: more than {_MOST_STATES} states")
        self._states.append((kind, value, following))
        return len(self._states) - 1

    def _sequence(self, items: Any, after: int) -> int:
        for op, value in reversed(list(items)):
            after = self._item(str(op), value, after)
        return after

    def _item(self, op: str, value: Any, after: int) -> int:
        if op in {"LITERAL", "NOT_LITERAL", "ANY", "IN"}:
            return self._add("one", self._accepts(op, value), after)
        if op == "BRANCH":
            return self._add("any way", None, *(self._sequence(branch, after) for branch in value[1]))
        if op == "SUBPATTERN":
            return self._sequence(value[3], after)
        if op in {"MAX_REPEAT", "MIN_REPEAT"}:
            least, most, items = value
            return self._repeat(least, most, items, after)
        if op == "AT" and str(value) in {"AT_BEGINNING", "AT_BEGINNING_STRING", "AT_END", "AT_END_STRING"}:
            return self._add("at", "start" if "BEGINNING" in str(value) else "end", after)
        raise ValueError(f"{op.lower().replace('_', ' ')} is not supported")

    def _repeat(self, least: int, most: Any, items: Any, after: int) -> int:
        if str(most) == "MAXREPEAT":
            # the loop's own state is known before what it repeats is compiled
            loop = self._add("any way", None)
            self._states[loop] = ("any way", None, (self._sequence(items, loop), after))
            after = loop
        else:
            end = after
            for _ in range(most - least):
                after = self._add("any way", None, self._sequence(items, after), end)
        for _ in range(least):
            after = self._sequence(items, after)
        return after

    def _accepts(self, op: str, value: Any) -> Callable[[str], bool]:
        if op == "ANY":
            return lambda character: character != "\n"
        if op == "IN":
            return self._one_of(value)
        wanted = chr(value).lower() if self._folds else chr(value)
        if op == "NOT_LITERAL":
            return lambda character: character != wanted
        return lambda character: character == wanted

    def _one_of(self, members: Any) -> Callable[[str], bool]:
        tests: list[Callable[[str], bool]] = []
        is_negated = False
        for op, value in members:
            name = str(op)
            if name == "NEGATE":
                is_negated = True
            elif name == "RANGE":
                tests.append(_in_range(*map(chr, value), folds=self._folds))
            elif name == "CATEGORY":
                tests.append(_in_category(str(value)))
            else:
                tests.append(self._accepts(name, value))
        return lambda character: any(test(character) for test in tests) != is_negated


def _in_range(low: str, high: str, *, folds: bool) -> Callable[[str], bool]:
    if folds:
        return lambda character: low <= character <= high or low <= character.upper() <= high
    return lambda character: low <= character <= high


def _in_category(name: str) -> Callable[[str], bool]:
    test = _IN_CATEGORY[name.replace("NOT_", "")]
    return (lambda character: not test(character)) if "NOT_" in name else test


@lru_cache(maxsize=1024)
def topic_pattern(text: str) -> TopicPattern:
    """The compiled pattern, kept for the next time.

    Raises:
        ValueError: as `TopicPattern`.
    """
    return TopicPattern(text)
