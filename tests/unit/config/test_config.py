import pytest

from kclient_quota.config import Backoff, LimitSource, QuotaConfig, TransactionTimeout, is_true, split
from kclient_quota.errors import ConfigError


def test_keys_of_ours_are_taken_out_and_the_rest_is_left_alone() -> None:
    rest, ours = split({"bootstrap.servers": "b:9092", "quota.backoff": "raise", "max.block.ms": "250", "linger.ms": 5})
    assert rest == {"bootstrap.servers": "b:9092", "linger.ms": 5}
    assert (ours.backoff, ours.max_block_ms, ours.limit_source) == (Backoff.RAISE, 250, LimitSource.AUTO)


def test_librdkafkas_own_transaction_timeout_is_no_slip_of_ours() -> None:
    rest, ours = split({"transaction.timeout.ms": 5_000, "quota.transaction.timeout": "abort"})
    assert rest == {"transaction.timeout.ms": 5_000}
    assert ours.transaction_timeout is TransactionTimeout.ABORT


def test_defaults() -> None:
    assert split({}) == ({}, QuotaConfig())


def test_interceptors_as_java_takes_them() -> None:
    marker = object()
    assert split({"interceptor.classes": "a.B, c.D"})[1].interceptors == ("a.B", "c.D")
    assert split({"interceptor.classes": [marker]})[1].interceptors == (marker,)
    assert split({"interceptor.classes": marker})[1].interceptors == (marker,)


@pytest.mark.parametrize(
    ("conf", "message"),
    [
        ({"producer_byte_rate": 0}, "producer_byte_rate=0: a limit is greater than 0; leave it out for no limit"),
        ({"consumer_byte_rate": -1}, "consumer_byte_rate=-1: a limit is greater than 0"),
        ({"request_percentage": "lots"}, "request_percentage='lots': give a finite number"),
        ({"producer_byte_rate": True}, "producer_byte_rate=True: give a finite number"),
        ({"producer_byte_rate": float("inf")}, "producer_byte_rate=inf: give a finite number"),
        ({"max.block.ms": -5}, "max.block.ms=-5: give a whole number of milliseconds"),
        ({"max.block.ms": 1.5}, "max.block.ms=1.5: give a whole number of milliseconds"),
        ({"quota.backoff": "sleep"}, "quota.backoff='sleep': choose one of block, raise, off"),
        (
            {"quota.transaction.timeout": "retry"},
            "quota.transaction.timeout='retry': choose one of report, abort",
        ),
        ({"quota.transaction.timeout.ms": 5}, "did you mean 'quota.transaction.timeout'?"),
        ({"quota.user": ""}, "quota.user='': give a non-empty string"),
        ({"quota.backof": "off"}, "unknown configuration key 'quota.backof': did you mean 'quota.backoff'?"),
        (
            {"producer.byte.rate": 5},
            "unknown configuration key 'producer.byte.rate': did you mean 'producer_byte_rate'?",
        ),
        ({"max_block_ms": 5}, "unknown configuration key 'max_block_ms': did you mean 'max.block.ms'?"),
        ({"quota.limit.source": "config"}, "quota.limit.source=config needs a limit"),
        ({"quota.limit.source": "callback"}, "needs client.quota.callback.class"),
        (
            {"quota.limit.source": "learned", "producer_byte_rate": 9},
            "producer_byte_rate contradicts quota.limit.source=learned",
        ),
    ],
)
def test_bad_values_name_the_key_and_the_remedy(conf: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        split(conf)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "key", ["max.poll.interval.ms", "linger.ms", "bootstrap.servers", "max.in.flight", "message.max.bytes"]
)
def test_keys_of_librdkafka_are_never_taken_for_slips(key: str) -> None:
    assert split({key: 1})[0] == {key: 1}


@pytest.mark.parametrize(("given", "true"), [(True, True), ("true", True), ("T", True), (False, False), ("0", False)])
def test_what_librdkafka_takes_for_true(given: object, true: bool) -> None:
    assert is_true(given) is true
