"""A client's score card as text, JSON and a badge, and the table of several clients as a page. Pure."""

import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, Final, Protocol

from kclient_quota.certify.scenes import ALL
from kclient_quota.certify.verdict import Grade

_GREY: Final = "#6b6b6b"
_COLOURS: Final = {
    Grade.PASS: "#2e7d32",
    Grade.WEAK: "#b26a00",
    Grade.FAIL: "#b3261e",
    Grade.ABSENT: _GREY,
    Grade.NOT_PLAYED: _GREY,
}
_WORST_FIRST: Final = (Grade.FAIL, Grade.WEAK, Grade.PASS, Grade.ABSENT, Grade.NOT_PLAYED)
_SCENE_REM, _CLIENT_REM = 16, 6
_BADGE_HEIGHT, _LETTER, _PADDING = 20, 6.6, 12

_BELOW: Final = " " * 11

Card = Mapping[str, Any]


def card(client: str, rows: Sequence[tuple[str, str, str, float]], versions: str, *, runs: int = 1) -> dict[str, Any]:
    """What is kept of a run: rows of scene, grade, reason and seconds, and how often each was played."""
    scenes = {
        name: {"grade": grade, "why": why, "seconds": round(seconds, 1), "runs": runs}
        for name, grade, why, seconds in rows
    }
    return {"client": client, "versions": versions, "scenes": scenes}


def score(made: Card) -> str:
    """How many scenes it passes, such as `31 of 32 pass, 1 weak`."""
    grades = Counter(row["grade"] for row in made["scenes"].values())
    parts = [f"{grades[Grade.PASS]} of {sum(grades.values())} pass"]
    parts += [
        f"{grades[grade]} {grade}"
        for grade in (Grade.WEAK, Grade.FAIL, Grade.ABSENT, Grade.NOT_PLAYED)
        if grades[grade]
    ]
    return ", ".join(parts)


def text(made: Card, width: int = 80) -> str:
    """The card for a terminal; a reason that has no room behind its row stands below it."""
    longest = max(map(len, made["scenes"]), default=0)
    lines = [f"{made['client']}: {score(made)}", ""]
    for name, row in made["scenes"].items():
        line = f"{row['grade']:10} {name.ljust(longest)}  {row['why']}"
        if len(line) <= width:
            lines.append(line)
        else:
            lines += [
                f"{row['grade']:10} {name}",
                *textwrap.wrap(row["why"], width, initial_indent=_BELOW, subsequent_indent=_BELOW),
            ]
    return "\n".join(lines)


def badge(made: Card) -> str:
    """An SVG badge: how many scenes the client passes."""
    grades = Counter(row["grade"] for row in made["scenes"].values())
    worst = next(
        grade for grade in (Grade.FAIL, Grade.WEAK, Grade.PASS, Grade.ABSENT, Grade.NOT_PLAYED) if grades[grade]
    )
    left, right = "throttling", f"{grades[Grade.PASS]}/{sum(grades.values())}"
    split, width = _width(left), _width(left) + _width(right)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{_BADGE_HEIGHT}" role="img" '
        f'aria-label="{left}: {right}"><rect width="{split}" height="{_BADGE_HEIGHT}" fill="#444"/>'
        f'<rect x="{split}" width="{width - split}" height="{_BADGE_HEIGHT}" fill="{_COLOURS[worst]}"/>'
        f'<g fill="#fff" font-family="Verdana,sans-serif" font-size="11"><text x="6" y="14">{left}</text>'
        f'<text x="{split + 6}" y="14">{right}</text></g></svg>\n'
    )


def _width(words: str) -> int:
    return int(len(words) * _LETTER) + _PADDING


class Question(Protocol):
    """A scene, or a row."""

    @property
    def name(self) -> str:
        """What it is called."""
        ...

    @property
    def expects(self) -> str:
        """What is right."""
        ...

    @property
    def source(self) -> str:
        """Who says so."""
        ...


def markdown(cards: Sequence[Card], questions: Sequence[Question]) -> str:
    """All questions by all cards as a Markdown table."""
    lines = ["| | " + " | ".join(made["client"] for made in cards) + " | source |", "|---|" + "---|" * (len(cards) + 1)]
    for question in questions:
        grades = " | ".join(made["scenes"].get(question.name, {}).get("grade", "-") for made in cards)
        lines.append(f"| `{question.name}`: {question.expects} | {grades} | {question.source} |")
    return "\n".join(line.replace("<", "&lt;") for line in lines)


def page(cards: Sequence[Card]) -> str:
    """All clients by all scenes, as one HTML page that needs nothing else."""
    heads = "".join(f"<th scope=col>{escape(made['client'])}</th>" for made in cards)
    rows = []
    for scene in ALL:
        cells = "".join(_cell(made["client"], made["scenes"].get(scene.name)) for made in cards)
        rows.append(
            f"<tr><th scope=row><b>{scene.name}</b><br>{escape(scene.expects)}<br>"
            f"<small>{escape(scene.source)}</small></th>{cells}</tr>"
        )
    scores = "".join(f"<td data-client={_quoted(made['client'])}>{escape(score(made))}</td>" for made in cards)
    versions = "".join(f"<li>{escape(made['client'])}: {escape(made['versions'])}{_often(made)}</li>" for made in cards)
    width = _SCENE_REM + _CLIENT_REM * len(cards)
    return _PAGE.format(heads=heads, rows="\n".join(rows), scores=scores, versions=versions, width=width)


def _often(made: Card) -> str:
    """How often each scene was played at the least, where that is more than once."""
    runs = min((row.get("runs", 1) for row in made["scenes"].values()), default=1)
    return f"; each scene {runs} times" if runs > 1 else ""


def _quoted(name: str) -> str:
    return f'"{escape(name)}"'


def _cell(client: str, row: Mapping[str, Any] | None) -> str:
    if row is None:
        return f"<td data-client={_quoted(client)}>-</td>"
    colour = _COLOURS[Grade(row["grade"])]
    words = f'<b style="color:{colour}">{row["grade"]}</b><br><small>{escape(row["why"])}</small>'
    return f"<td data-client={_quoted(client)}>{words}</td>"


_PAGE: Final = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>How Kafka clients bear throttling</title>
<style>
body {{ font: 15px/1.4 system-ui, sans-serif; margin: 2rem; color: #1b1b1b; background: #fff }}
div {{ overflow-x: auto }}
table {{ border-collapse: collapse; table-layout: fixed; width: 100%; min-width: {width}rem }}
th, td {{ border: 1px solid #ccc; padding: .4rem .5rem; vertical-align: top; text-align: left }}
th, td {{ overflow-wrap: anywhere }}
thead th:first-child {{ width: 16rem }} tbody th {{ font-weight: normal }} small {{ color: #555 }}
@media (max-width: 60rem) {{
body {{ margin: 1rem }} table {{ min-width: 0 }} thead {{ display: none }} table, tbody {{ display: block }}
tr {{ display: grid; grid-template-columns: repeat(auto-fill, minmax(9rem, 1fr)); margin-bottom: 1rem }}
tbody th {{ grid-column: 1 / -1; background: #f4f4f4 }} td::before {{ content: attr(data-client) ": " }}
}}
</style></head><body>
<h1>How Kafka clients bear throttling</h1>
<p>Each row is a scene on an embedded broker; <code>kclient-quota certify client -- COMMAND</code> plays them.</p>
<div><table><thead><tr><th scope=col>Scene</th>{heads}</tr></thead>
<tbody><tr><th scope=row>All</th>{scores}</tr>
{rows}
</tbody></table></div>
<h2>Versions</h2><ul>{versions}</ul>
</body></html>
"""
