"""The commands, which are loaded when they are called."""

from pkgutil import walk_packages

from kclient_quota import cli

hiddenimports = [
    "kclient_quota.broker.command",
    *(module.name for module in walk_packages(cli.__path__, f"{cli.__name__}.")),
]
