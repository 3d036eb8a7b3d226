"""What tests of administration share: a guarded Apache Kafka of their own, and asking until it has heard."""

import time
from contextlib import contextmanager

from kclient_quota.testing.apache import ApacheKafka
from tests.required import require_apache_kafka

GUARDED = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS;User:admin",
    "default.replication.factor": "1",
}


@contextmanager
def apache(**options):
    require_apache_kafka()
    with ApacheKafka(properties=GUARDED, **options) as cluster:
        yield cluster


def eventually(ask, is_right, timeout_s=60):
    """Brokers learn of quotas from the metadata log, a moment after the controller has answered."""
    end = time.monotonic() + timeout_s
    while not is_right(got := ask()) and time.monotonic() < end:
        time.sleep(0.02)
    assert is_right(got), got
    return got
