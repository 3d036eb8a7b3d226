"""Buffers for large request frames: memory that costs nothing until bytes arrive in it, and is used again."""

import mmap

_SMALLEST = 64 * 1024
_KEPT_BYTES = 64 * 1024 * 1024


class FrameBuffers:
    """Hands out buffers of at least the size asked for and takes them back; sizes are powers of two.

    A length that a stranger claims reserves addresses, not memory: pages come as they are written to.
    """

    def __init__(self) -> None:
        self._free: dict[int, list[mmap.mmap]] = {}
        self._kept_bytes = 0

    def take(self, size: int) -> mmap.mmap:
        """A buffer of at least `size` bytes, its contents arbitrary."""
        rounded = max(_SMALLEST, 1 << (size - 1).bit_length())
        free = self._free.get(rounded)
        if free:
            self._kept_bytes -= rounded
            return free.pop()
        return mmap.mmap(-1, rounded, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)

    def give_back(self, buffer: mmap.mmap) -> None:
        """Let `buffer` be used again; nobody may refer to its contents any more."""
        if self._kept_bytes + len(buffer) <= _KEPT_BYTES:
            self._kept_bytes += len(buffer)
            self._free.setdefault(len(buffer), []).append(buffer)
