"""The modules that decide, and the tests that are to notice when they decide wrongly."""

UNIT = "tests/unit/"
QUOTA = (UNIT + "quota",)
SENDING = (
    UNIT + "pacing/test_pacer_edges.py",
    UNIT + "pacing/test_send_queue.py",
    UNIT + "pacing/test_spare.py",
    UNIT + "pacing/test_worth.py",
    UNIT + "pacing/test_known_share.py",
    UNIT + "pacing/test_learnt_share.py",
    UNIT + "clients/test_producer_core.py",
    UNIT + "clients/test_producer_lanes.py",
)
FETCHING = (
    UNIT + "pacing/test_fetch_parts.py",
    UNIT + "pacing/test_fetch_lost.py",
    UNIT + "pacing/test_share_fetch.py",
    UNIT + "clients/test_consumer_core.py",
    UNIT + "clients/test_consumer_sizing.py",
    UNIT + "pacing/test_fetch.py",
)
_CLIENTS, _TELEMETRY = UNIT + "clients/test_", UNIT + "telemetry/test_telemetry_"
PRODUCING = tuple(f"{_CLIENTS}producer_{name}.py" for name in ("core", "price", "lanes"))
CONSUMING = tuple(
    f"{_CLIENTS}{name}.py" for name in ("consumer_core", "consumer_held", "consumer_sizing", "poll_idle", "heartbeat")
)
REPORTING = tuple(
    f"{_TELEMETRY}{name}.py" for name in ("reporter", "reporter_payload", "reporter_closing", "subscription", "metric")
)
RECEIVING = tuple(f"{_TELEMETRY}{name}.py" for name in ("manager", "connections", "subscription"))

_PACING = {
    SENDING: ("batch_cost fair known_share lanes learnt_share pacer price room send_pace send_queue spare turns worth"),
    FETCHING: "fetch fetch_broker fetch_lost fetch_share fetch_sizes fetch_statistics fetch_window share_fetch",
}
_QUOTA = "callback connections delay_queue entity manager managers rate resolution throttle token_bucket"
_CONSUMER = "core held joining poll_idle sizing stall"
_CLIENT = "payload reporter retry states subscription temporality"
_ROOMS = [
    ("kclient_quota/quota", _QUOTA, QUOTA),
    *(("kclient_quota/pacing", names, tests) for tests, names in _PACING.items()),
    ("kclient_quota/clients/producer", "core routes", PRODUCING),
    ("kclient_quota/clients/consumer", _CONSUMER, CONSUMING),
    ("telemetry/kclient_telemetry/client", _CLIENT, REPORTING),
    ("telemetry/kclient_telemetry/receiver", "instance manager stats subscription", RECEIVING),
]
CORES: dict[str, tuple[str, ...]] = {
    f"{room}/{name}.py": tests for room, names, tests in _ROOMS for name in names.split()
}
SLOW = [
    "a_quota_is_followed_with_librdkafkas",
    "batches_that_fill_much",
    "batches_that_are_small",
    "strangers",
    "other_windows_of_the_broker",
    "each_broker_has_a_quota",
    "a_quota_that_nobody_told",
    "noise_after_letters",
]
"""Simulations of seconds: a mutant is to be noticed without them."""
