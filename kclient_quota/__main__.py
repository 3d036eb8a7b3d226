"""`python -m kclient_quota` is `kclient-quota`."""

import sys

from kclient_quota.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
