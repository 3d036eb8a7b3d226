"""`python -m kclient_quota.broker`."""

import sys

from kclient_quota.broker.command import main

sys.exit(main())
