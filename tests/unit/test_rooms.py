"""How large a room may be: what a newcomer still takes in at a glance."""

from pathlib import Path

import kclient_quota

HOUSE = Path(kclient_quota.__file__).parent
ROOMS = ("broker", "clients", "pacing", "quota", "simulation", "spark")


def test_no_folder_holds_more_than_fifteen_files():
    folders = [folder for room in ROOMS for folder in (HOUSE / room, *(HOUSE / room).rglob("*")) if folder.is_dir()]
    crowded = {folder: count for folder in folders if (count := len(list(folder.glob("*.py")))) > 15}
    assert not crowded


def test_no_file_has_more_than_four_hundred_lines():
    files = [file for room in ROOMS for file in (HOUSE / room).rglob("*.py")]
    long = {file: count for file in files if (count := len(file.read_text().splitlines())) > 400}
    assert not long
