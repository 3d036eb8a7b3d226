"""The places of a module where something may go wrong, and the mutants made there, by cosmic-ray's operators."""

import ast
import difflib
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

from tests.mutants.cores import CORES

ROOT = Path(__file__).parents[2]
_GUARDS = ("frozen", "slots")


@dataclass(frozen=True)
class Mutant:
    """One change to one module."""

    path: str
    source: str

    @property
    def change(self) -> str:
        """The lines that differ."""
        lines = list(difflib.unified_diff(original(self.path).splitlines(), self.source.splitlines(), n=0, lineterm=""))
        return "\n".join(line.rstrip() for line in lines[2:] if line[0] in "+-")


def original(path: str) -> str:
    """The text of a module as it is."""
    return (ROOT / path).read_text()


def sample(count: int, seed: int, part: str) -> tuple[list[Mutant], int]:
    """As many places as asked for, one mutant of each; how many places there are."""
    random = Random(seed)
    every = [(path, options) for path in CORES if part in path for options in _places(path)]
    random.shuffle(every)
    made = (_mutant(path, *random.choice(options)) for path, options in every)
    return list(islice((one for one in made if one is not None), count)), len(every)


def _places(path: str) -> list[list[tuple[Any, int]]]:
    """What may go wrong in each place of a module: an operator, and which of the places it knows this is."""
    # only `make mutants` installs it
    from cosmic_ray.ast import ast_nodes, get_ast_from_path
    from cosmic_ray.plugins import get_operator, operator_names

    tree = get_ast_from_path(ROOT / path)
    found: dict[Any, list[tuple[Any, int]]] = {}
    for name in sorted(operator_names()):
        if get_operator(name).arguments():
            continue
        operator = get_operator(name)()
        spots = [spot for node in ast_nodes(tree) for spot, _ in operator.mutation_positions(node)]
        for occurrence, spot in enumerate(spots):
            found.setdefault(spot, []).append((operator, occurrence))
    return [found[spot] for spot in sorted(found)]


def _mutant(path: str, operator: Any, occurrence: int) -> Mutant | None:
    """One of them; None where nothing that can be noticed would change, or it cannot be compiled."""
    from cosmic_ray.mutating import mutate_code

    made = mutate_code(original(path), operator, occurrence)
    return None if made is None or _meaning(made) in {_meaning(original(path)), ""} else Mutant(path, made)


def _meaning(code: str) -> str:
    """The tree without what nobody could notice when it changes; nothing where it cannot be compiled."""
    try:
        tree = ast.parse(code)
    except SyntaxError:
        return ""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():  # annotations are not looked at
                node.returns = None
            case ast.arguments():  # the star or slash between them is no operator
                node.args, node.posonlyargs, node.kwonlyargs = node.posonlyargs + node.args + node.kwonlyargs, [], []
                node.defaults, node.kw_defaults = node.defaults + [each for each in node.kw_defaults if each], []
            # strict forbids what would be a fault elsewhere: the lengths of what the cores pair agree by construction
            # (lists that grow and shrink together, tuples of one length), so that without it nothing changes.
            case ast.Call(func=ast.Name("zip")):
                node.keywords = []
            case ast.arg():
                node.annotation = None
            case ast.AnnAssign():
                node.annotation = ast.Constant(None)
            case ast.If(test=test) if "TYPE_CHECKING" in ast.dump(test):  # such imports serve annotations alone
                node.test = ast.Constant(None)
            case ast.Call(func=ast.Name("dataclass")):  # they forbid what mypy finds
                node.keywords = [word for word in node.keywords if word.arg not in _GUARDS]
            case ast.Compare(ops=[operator], comparators=[other]) if _is_one_object(other):
                node.ops = [_EQUAL.get(type(operator), type(operator))()]
    return ast.dump(tree)


_EQUAL: dict[type[ast.cmpop], type[ast.cmpop]] = {ast.Is: ast.Eq, ast.IsNot: ast.NotEq}
_NUMBERS = {"ErrorCode", "CompressionType", "QuotaTypesEnabled"}


def _is_one_object(node: ast.expr) -> bool:
    """None, or a member of an enumeration that is no number: what equals it is it."""
    match node:
        case ast.Constant(value=None) | ast.Name("DEFAULT"):
            return True
        case ast.Attribute(value=ast.Name(kind), attr=member):
            return member.isupper() and kind not in _NUMBERS
    return False
