"""What can be tuned in the laws, and what is given, by module of `kclient_quota.pacing`."""

from typing import Final

WHY: Final = {
    "fetch_broker.BATCH_FADE": "batches that are played are all alike",
    "send_pace.UNEVEN": "0.06 of the messages on the embedded broker, with real keys",
}
"""Why a constant stays of which no scene tells anything; five at most."""

CONSTANTS: Final = {
    "known_share": (
        "known",
        """TARGET INCREASE_PER_S MOST_INCREASE_PER_S CALM_DOUBLING_MS HARSH_THROTTLE_MS LEAST_DECREASE
        MOST_DECREASE NEW_MS ALONE TRUST""",
    ),
    "pacer": ("known", "TARGET LUMP LATENESS BURST SLACK"),
    "learnt_share": (
        "learnt",
        """PRICE REQUEST_PART MOST_FALL FREE_RISE PAID_RISE LEAST_PART YOUNG_DRIFT YOUNG_RISE
        MOST_PRICE FORETOLD_MS FORETOLD""",
    ),
    "price": ("learnt", "DRIFT_PER_S PRICE_MS"),
    "fetch_share": ("fetch", "TARGET PRICE MOST_FALL MOST_RISE MOST_LEAP"),
    "fetch_broker": ("fetch", "SAVED_MS JITTER BATCH_FADE"),
    "fetch_window": ("share", "SLACK_MS"),
    "share_window": ("share", "STALL_MS"),
    "fetch": ("fetch", "GRANT_MS"),
    "claim": ("beside", "PATIENCE_MS LASTS_MS MOST_PART STEP WORSE TREND"),
    "lump_size": ("send", "WORTH FRAMING_WORTH FEW"),
    "send_pace": ("send", "LATE_ROOM UNEVEN TREND MOSTLY_SENT"),
    "batch_cost": ("send", "FORGET FIRST_BYTES LITTLE LEARNS_FROM TRUST"),
    "lumps": ("share", "LUMPS LARGE SAVED_BATCHES OPEN_MS SLOW_OPEN_MS"),
    "fetch_sizes": (
        "sizes",
        "SLACK MANY LONGEST_LUMP_MS STEP MOST_TIME_MS",
    ),
    "spare": ("spare", "LEAST_RATE PART"),
}
"""What can be tuned, by module of `kclient_quota.pacing`, with the side whose scenes are played."""

GIVEN: Final = {
    "batch_cost": "DEAR FRAMING_BYTES NAMES_BYTES OVERHEAD_BYTES LEAST_PART MOST_PART LEAST_OVERHEAD MOST_OVERHEAD",
    "claim": "LET_OFF_MS",
    "fair": "SLACK",
    "fetch": "RECORD_BYTES LEARNING_MS LEAST_RATIO MOST_RATIO ONLY",
    "fetch_broker": "CLOCK_JUMP_MS EMPTY_BYTES LATE_DATA",
    "fetch_share": "LATE_MS LEAST_FETCH_BYTES ENDLESS_BYTES_PER_S",
    "fetch_sizes": """CUT ROUND_TRIP_MS SPARE_MS BATCH_BYTES ONE_BATCH LEAST_MOST_BYTES HEADER_BYTES FRAME_BYTES
        PARTITION_BYTES LUMP LEARNING_QUEUE_BYTES LEARNING_FETCH_BYTES DEFAULT_FETCH_BYTES DEFAULT_QUEUE_BYTES
        MOST_FETCH_BYTES OPEN""",
    "fetch_window": "STEP_MS",
    "known_share": "REQUEST_MS CALM_MS LEAST_SHARE",
    "lanes": "DEFAULT_LANE MOST_SPARE NO_TENANT",
    "learnt_share": "STALE_MS LEAST_RATE ENDLESS_BYTES_PER_S LONGEST_STEP_S LONGEST_REQUEST_MS",
    "lump_size": "MAX_DELAY_MS",
    "lumps": "CLOCK_JUMP_MS",
    "neighbours": "NEEDED_MS DEALT_MS",
    "pacer": """MOST_REQUEST_BYTES CLOCK_JUMP_MS SLOW_START_BYTES MOST_SLOW_START_BYTES NEVER_REVIEWED LEAST_RATE
        OUTSTANDING_MS LONGEST_WAIT_MS""",
    "send_pace": "IN_FLIGHT QUEUEING MOST_WAY_MS PROBE_MS LOOKS NEVER_MS SOON_MS",
    "send_queue": "NEVER MAX_BYTES TENANT_ROOM LOOK_MS ROUND_MS LEAST_MESSAGES ACCEPTED",
    "share_fetch": "ANSWER_BYTES RECORD_BYTES LOOK_MS ANY_BROKER",
    "share_window": "UNSURE_MS",
    "turns": "ANY_PARTITION SLACK",
    "spare": "SPAN_MS",
    "worth": "SAMPLE MUCH",
}
"""What is no law's to tune: what is twice or half of another thing, what Kafka, librdkafka or another constant gives,
when something is looked at, where an overflow or a clock that jumps is stopped, and when the log has a word to say."""
