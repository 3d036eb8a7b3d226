"""What all generated pages share."""

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "docs" / "reference"
PACKAGES = (ROOT / "kclient_quota", ROOT / "telemetry" / "kclient_telemetry")

_SECTION = re.compile(r"^(Args|Attributes|Returns|Raises|Yields|Example|Examples):$")
_ENTRY = re.compile(r"^ {4}(\*{0,2}[\w.|, \[\]]+): (.*)$")


def head(title: str, *paragraphs: str) -> str:
    """Title and opening of a page, with the note that says where it comes from."""
    note = "<!-- made by `python -m docs.generate`; change the code, not this page -->"
    return "\n\n".join((f"# {title}", note, *paragraphs)) + "\n"


def modules() -> Iterator[ast.Module]:
    """Every source file of the product, parsed, in order of its path."""
    for package in PACKAGES:
        for path in sorted(package.rglob("*.py")):
            yield ast.parse(path.read_text())


def cell(text: str) -> str:
    """Text for a cell of a Markdown table."""
    return " ".join(text.split()).replace("|", "\\|")


def first_paragraph(documented: object) -> str:
    """The first paragraph of a docstring in one line."""
    return " ".join((inspect.getdoc(documented) or "").split("\n\n")[0].split())


def markdown(docstring: str) -> str:
    """A docstring in Google's form as Markdown: sections as lists, examples as code."""
    lines: list[str] = []
    section = ""
    for line in inspect.cleandoc(docstring).splitlines():
        heading, entry = _SECTION.match(line), _ENTRY.match(line)
        if heading:
            section = heading[1]
            lines += [f"*{section}*", ""]
        elif section.startswith("Example"):
            lines.append(line)
        elif section and entry:
            lines.append(f"- `{entry[1]}`: {entry[2]}")
        elif section and line.startswith("    "):
            lines.append(f"  {line.strip()}")
        else:
            section = section if not line else ""
            lines.append(line)
    return "\n".join(lines).rstrip()
