"""What can be tuned in the laws, and what is given, by module of `kclient_quota.pacing`."""

from typing import Final

WHY: Final = {
    "known_share.TRUST": "four times as fast, bytes that nobody told of have one answer in six throttled, not in 20",
    "pacer.LATENESS": "1 leaves 0.045 of the quota among two strangers; 0 another 0.013 where messages are of 20 kB",
    "pacer.SLACK": "without it tenants differ by more than 0.05 within ten seconds",
    "send_pace.UNEVEN": "0.06 of the messages on the embedded broker, with real keys",
}
"""Why a constant stays of which no scene tells anything; five at most."""

CONSTANTS: Final = {
    "known_share": (
        "known",
        """TARGET INCREASE_PER_S MOST_INCREASE_PER_S CALM_DOUBLING_MS HARSH_THROTTLE_MS LEAST_DECREASE
        MOST_DECREASE TRUST""",
    ),
    "pacer": ("known", "LATENESS SLACK"),
    "learnt_share": (
        "learnt",
        "PRICE REQUEST_PART FREE_RISE PAID_RISE LEAST_PART MOST_PRICE",
    ),
    "price": ("learnt", "DRIFT_PER_S PRICE_MS"),
    "fetch_share": ("fetch", "PRICE"),
    "fetch_broker": ("fetch", "SAVED_MS"),
    "fetch_window": ("share", "SLACK_MS"),
    "share_window": ("share", "STALL_MS"),
    "claim": ("beside", "PATIENCE_MS LASTS_MS MOST_PART STEP WORSE TREND"),
    "lump_size": ("send", "WORTH FRAMING_WORTH"),
    "send_pace": ("send", "LATE_ROOM UNEVEN"),
    "batch_cost": ("send", "FIRST_BYTES"),
    "lumps": ("share", "LUMPS SAVED_BATCHES"),
    "fetch_sizes": (
        "sizes",
        "SLACK MANY LONGEST_LUMP_MS",
    ),
    "spare": ("spare", "LEAST_RATE PART"),
}
"""What can be tuned, by module of `kclient_quota.pacing`, with the side whose scenes are played."""

GIVEN: Final = {
    "batch_cost": """DEAR LITTLE FRAMING_BYTES NAMES_BYTES OVERHEAD_BYTES LEAST_PART MOST_PART LEAST_OVERHEAD
        MOST_OVERHEAD""",
    "claim": "LET_OFF_MS",
    "fair": "SLACK",
    "fetch": "RECORD_BYTES LEARNING_MS LEAST_RATIO MOST_RATIO ONLY LEAST_UNPOLLED_MS UNPOLLED_MS POLLED_PART",
    "fetch_broker": "CLOCK_JUMP_MS EMPTY_BYTES TOLD_MS LATE_DATA",
    "fetch_share": "MOST_LEAP TARGET ALONE_MS LATE_MS LEAST_FETCH_BYTES ENDLESS_BYTES_PER_S",
    "fetch_sizes": """CUT ROUND_TRIP_MS SPARE_MS LOOK_MS BATCH_BYTES ONE_BATCH LEAST_MOST_BYTES HEADER_BYTES FRAME_BYTES
        PARTITION_BYTES LUMP LEARNING_QUEUE_BYTES LEARNING_FETCH_BYTES DEFAULT_FETCH_BYTES DEFAULT_QUEUE_BYTES
        MOST_FETCH_BYTES MOST_MOST_BYTES MOST_TIME_MS OPEN STEP""",
    "fetch_window": "STEP_MS",
    "known_share": "ALONE REQUEST_MS CALM_MS LEAST_SHARE",
    "lanes": "DEFAULT_LANE MOST_SPARE NO_TENANT",
    "learnt_share": "MOST_CHANGE STALE_MS LEAST_RATE ENDLESS_BYTES_PER_S LONGEST_STEP_S LONGEST_REQUEST_MS",
    "lump_size": "MAX_DELAY_MS",
    "lumps": "CLOCK_JUMP_MS",
    "neighbours": "NEEDED_MS DEALT_MS",
    "pacer": """TARGET IN_FLIGHT MOST_REQUEST_BYTES CLOCK_JUMP_MS SLOW_START_BYTES MOST_SLOW_START_BYTES NEVER_REVIEWED
        NOT_YET LATE_SAMPLES
        LEAST_RATE OUTSTANDING_MS LONGEST_WAIT_MS""",
    "send_pace": "ANSWER_ROOM_BYTES PROBE_MS",
    "throttle_told": "NEVER_MS",
    "way": "QUEUEING MOST_WAY_MS SOON_MS",
    "send_queue": "NEVER MAX_BYTES TENANT_ROOM LOOK_MS ROUND_MS LEAST_MESSAGES ACCEPTED",
    "share_fetch": "ANSWER_BYTES RECORD_BYTES LOOK_MS ANY_BROKER",
    "share_window": "UNSURE_MS",
    "trend": "TREND",
    "turns": "ANY_PARTITION SLACK",
    "spare": "SPAN_MS BESIDE_OTHERS LEAST_BESIDE_OTHERS",
    "wire_told": "LOOKS CHEAP_LOOKS",
    "worth": "SAMPLE MUCH",
}
"""What is no law's to tune: what is twice or half of another thing, what Kafka, librdkafka or another constant gives,
when something is looked at, where an overflow or a clock that jumps is stopped, and when the log has a word to say."""
