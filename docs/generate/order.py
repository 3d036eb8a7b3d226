"""The order of the site's sections, which mkdocs would sort by name: a reader learns, does, understands, looks up."""

from typing import Any

SECTIONS = ("Tutorials", "How to", "Explanation", "Reference")


def on_nav(nav: Any, **_: Any) -> Any:
    """Put them in order; called when the pages have been found."""
    nav.items.sort(key=lambda item: SECTIONS.index(item.title) if item.title in SECTIONS else -1)
    return nav
