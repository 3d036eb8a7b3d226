"""docs/reference/broker-apis.md: what the embedded broker answers, from its registry and its handlers' cards."""

import importlib
import inspect
import pkgutil

from docs.generate.page import head
from kclient_quota.broker import handlers
from kclient_quota.broker.request.registry import REGISTRY


def page() -> str:
    """The whole page."""
    cards: dict[str, str] = {}
    for found in pkgutil.walk_packages(handlers.__path__, f"{handlers.__name__}."):
        module = importlib.import_module(found.name)
        if any(entry.call.__module__ == found.name for entry in REGISTRY.values()):
            cards[found.name] = inspect.getdoc(module) or ""
    rows = [
        f"| {key} | {entry.request.__schema__.name.removesuffix('Request')} | {entry.min_version}-{entry.max_version} |"
        for key, entry in sorted(REGISTRY.items())
    ]
    parts = [
        head(
            "APIs of the embedded broker",
            "What `ApiVersions` of the embedded broker offers. Below it, each family's card: how it behaves, and what it lacks.",
        ),
        "| key | API | versions |",
        "|---|---|---|",
        *rows,
        "",
    ]
    for module, card in sorted(cards.items()):
        parts += [f"## {module.removeprefix('kclient_quota.broker.handlers.')}", "", card.strip(), ""]
    return "\n".join(parts)
