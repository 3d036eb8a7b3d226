"""Hooks that PyInstaller finds by the entry point `pyinstaller40`: what is imported by name, which it does not see."""

from pathlib import Path


def hook_dirs() -> list[str]:
    """Where the hooks lie."""
    return [str(Path(__file__).parent)]
