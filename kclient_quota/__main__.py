"""`python -m kclient_quota` is `kclient-quota`."""

from kclient_quota.cli.main import entry

if __name__ == "__main__":
    entry()
