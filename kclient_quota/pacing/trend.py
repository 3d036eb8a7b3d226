"""How fast what is measured again and again replaces what was believed before."""

from typing import Final

TREND: Final = 1 / 8
"""So much of a running mean is the latest that was measured; what was measured before counts for the rest of it: the
part that TCP takes for round trips (RFC 6298)."""
