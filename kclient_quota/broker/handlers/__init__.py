"""One file per API family, each registering itself in `registry.REGISTRY`; every file of this package is imported."""

import pkgutil
from importlib import import_module

from kclient_quota.broker.handlers.registry import REGISTRY, Registration, handler

__all__ = ["REGISTRY", "Registration", "handler"]

for _module in pkgutil.iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")
