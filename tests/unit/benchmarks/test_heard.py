"""What is told of clients that know their quota is what they were told, and nothing of how they pace is changed."""

from benchmarks.heard import WARM_UP_S, Ears, listening
from kclient_quota.pacing.known_share import KnownShare


def test_ears_hear_every_answer_after_the_warm_up_and_change_nothing() -> None:
    ears, before = Ears(), KnownShare.on_throttle
    share = KnownShare(100_000)
    with listening(ears, {}):
        share.on_free(0)
        share.on_throttle(1_000, 10_000, 500, 1_000)
        share.on_free(WARM_UP_S * 1000)
        share.on_throttle(1_000, 10_000, 300, WARM_UP_S * 1000 + 1)
    assert ears.throttles_ms == [0, 300]
    assert (ears.part, ears.mean_ms) == (0.5, 150)
    assert share.rate < 100_000
    assert KnownShare.on_throttle is before
