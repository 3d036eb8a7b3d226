"""What a broker's window has room for: how fast one may send from now on, whatever was sent before.

Let b be a time from now, V(b) what the window still remembers then of what has been sent, W(b) how long it is, and S
what may be sent at once. A rate R is sustainable if V(b) + S + R b <= T W(b) for every b: then the broker never finds
more than T. V falls when a sample leaves the window, and W is short just then and when the oldest sample is ten seconds
old, one that begins now among them: it is enough to look at those moments. For that one it is R <= T - S / 10 s: a
burst of S is paid back over the life of a window and no longer, and what was sent evenly before it costs nothing, since
it leaves as it came.
"""

from kclient_quota.quota.rate import SampledRate


def sustainable_rate(mirror: SampledRate, limit: float, at_once: float, now_ms: int) -> float:
    """Bytes per second that may follow.

    Args:
        mirror: what the broker's window remembers.
        limit: the quota in bytes per second.
        at_once: bytes that may be sent at any time beside that rate; below zero: that are to be waited for.
        now_ms: now.

    Returns:
        Bytes per second; zero or less: wait until the window has forgotten some.
    """
    least = limit - at_once * 1000.0 / (mirror.window_ms * max(mirror.samples - 1, 1))
    for at_ms, remembered, window_ms in mirror.forgetting(now_ms):
        room = limit * window_ms / 1000.0 - remembered - at_once
        least = min(least, room * 1000.0 / max(at_ms - now_ms, 1))
    return least
