"""A plain client whose requests time out, real and simulated."""

from benchmarks.simulation import Case, real, simulated


def test_a_plain_producer_times_out_and_sends_again_as_in_the_simulation():
    """Requests of 1 MB at five seconds each: what waits behind two of them times out."""
    case = Case("plain", 0, 204_800, plain=1, socket_timeout_ms=10_000, warm_up=0.0)
    theirs, ours = real([case], 25)["plain"], simulated(case, 25)
    assert ours.timeouts == 2
    assert abs(theirs.timeouts - ours.timeouts) <= 1
    assert theirs.duplicates > 0
    assert ours.duplicates > 0
    for finding in (theirs, ours):
        # What is recorded is what is acknowledged and what is there twice, and a request whose answer is to come.
        messages = 990
        recorded = (finding.utilisation * 204_800 * 25) / 1_010
        acknowledged = (finding.payload * 204_800 * 25) / 1_000
        assert abs(recorded - acknowledged - finding.duplicates) <= 2 * messages
