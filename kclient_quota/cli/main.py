"""`kclient-quota`: options in, a call, text out."""

import argparse


def main(argv: list[str] | None = None) -> int:
    """Run the command line `argv` (the process's own when None) and return the exit status."""
    parser = argparse.ArgumentParser(prog="kclient-quota", description=__doc__)
    parser.parse_args(argv)
    parser.print_help()
    return 0
