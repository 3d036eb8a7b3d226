import copy
import pickle

import pytest

from kclient_quota.errors import ClusterError, ConfigError, KclientQuotaError, QuotaThrottledError, WireError

ERRORS = [
    QuotaThrottledError("the quota is used up", retry_after_ms=7, broker_id=3),
    ClusterError("refused", error_code=31),
    ConfigError("no"),
    WireError("no"),
    KclientQuotaError("no"),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_every_error_of_ours_can_be_pickled_and_copied(error: Exception) -> None:
    for made in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
        assert type(made) is type(error)
        assert (str(made), vars(made)) == (str(error), vars(error))
