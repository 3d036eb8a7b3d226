"""`python -m kclient_quota` is `kclient-quota`."""

from kclient_quota.cli.installed import kclient_quota

if __name__ == "__main__":
    kclient_quota()
