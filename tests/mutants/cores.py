"""The modules that decide, and the tests that are to notice when they decide wrongly."""

UNIT, PROPERTY = "tests/unit/", "tests/property/test_"
QUOTA = (UNIT + "quota", *(f"{PROPERTY}quota_{name}.py" for name in ("rate", "resolution", "token_bucket")))
_CLIENTS = (UNIT + "clients",)
PACING = (UNIT + "pacing", *_CLIENTS, PROPERTY + "send_queue_machine.py", PROPERTY + "quota_pacing.py")
TELEMETRY = tuple(
    f"{UNIT}telemetry/test_telemetry_{name}.py"
    for name in (
        "client_edges",
        "collector",
        "connections",
        "edges",
        "manager",
        "messages",
        "metric",
        "naming",
        "payload_edges",
        "receiver_edges",
        "receiver_stats_edges",
        "reporter",
        "reporter_closing",
        "reporter_payload",
        "subscription",
    )
)

_PACING = "claim fair fetch_window known_share learnt_share neighbours pacer price room spare"
_SENDING = "batch_cost lanes lump_size send_pace send_queue turns wire_told worth"
_FETCHING = "fetch fetch_broker fetch_lost fetch_share fetch_sizes fetch_statistics lumps share_fetch share_window"
_QUOTA = "callback connections delay_queue entity manager managers rate resolution throttle token_bucket"
_ROOMS = [
    ("kclient_quota/quota", _QUOTA, QUOTA),
    ("kclient_quota/pacing", _PACING, PACING),
    ("kclient_quota/pacing/sending", _SENDING, PACING),
    ("kclient_quota/pacing/fetching", _FETCHING, PACING),
    ("kclient_quota/clients/producer", "core routes", _CLIENTS),
    ("kclient_quota/clients/consumer", "core held joining poll_idle reading_turns sizing stall", _CLIENTS),
    ("telemetry/kclient_telemetry/client", "payload reporter retry states subscription temporality", TELEMETRY),
    ("telemetry/kclient_telemetry/receiver", "instance manager stats subscription", TELEMETRY),
]
CORES: dict[str, tuple[str, ...]] = {
    f"{room}/{name}.py": tests for room, names, tests in _ROOMS for name in names.split()
}
SLOW = (
    "a_quota_is_followed_with_librdkafkas",
    "batches_that_fill_much",
    "batches_that_are_small",
    "strangers",
    "other_windows_of_the_broker",
    "each_broker_has_a_quota",
    "a_quota_that_nobody_told",
    "noise_after_letters",
    "hundred_thousand_quotas",
    "several_use_the_quota_evenly",
    "slow_to_answer_is_sent",
    "known_to_be_our_own",
    "messages_of_no_tenant",
)
"""Simulations of seconds: a mutant is to be noticed without them."""
