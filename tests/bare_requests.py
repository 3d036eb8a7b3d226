"""Requests as bytes, for tests that are about connections and not about what is asked on them."""

from typing import Final

API_VERSIONS: Final = bytes.fromhex("0000000a 0012 0000 00000001 ffff")
"""ApiVersions, version 0, correlation id 1, no client id: what every broker answers, and every client asks first."""
