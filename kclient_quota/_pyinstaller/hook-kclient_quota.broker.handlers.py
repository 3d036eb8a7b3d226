"""The embedded broker's APIs, each of which registers itself."""

from pkgutil import walk_packages

from kclient_quota.broker import handlers

hiddenimports = [module.name for module in walk_packages(handlers.__path__, f"{handlers.__name__}.")]
