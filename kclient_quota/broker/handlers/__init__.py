"""One file per API family; every file below here is imported and registers itself in `request.registry`."""

import pkgutil
from importlib import import_module

from kclient_quota.broker.request.registry import REGISTRY, Registration, handler

__all__ = ["REGISTRY", "Registration", "handler"]

for _module in pkgutil.walk_packages(__path__, f"{__name__}."):
    import_module(_module.name)
