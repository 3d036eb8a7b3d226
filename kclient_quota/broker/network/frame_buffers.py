"""Buffers for large request frames, used again: fresh memory costs page faults."""

_SMALLEST = 64 * 1024
_KEPT_BYTES = 64 * 1024 * 1024


class FrameBuffers:
    """Hands out buffers of at least the size asked for and takes them back; sizes are powers of two."""

    def __init__(self) -> None:
        self._free: dict[int, list[bytearray]] = {}
        self._kept_bytes = 0

    def take(self, size: int) -> bytearray:
        """A buffer of at least `size` bytes, its contents arbitrary."""
        rounded = max(_SMALLEST, 1 << (size - 1).bit_length())
        free = self._free.get(rounded)
        if free:
            self._kept_bytes -= rounded
            return free.pop()
        return bytearray(rounded)

    def give_back(self, buffer: bytearray) -> None:
        """Let `buffer` be used again; nobody may refer to its contents any more."""
        if self._kept_bytes + len(buffer) <= _KEPT_BYTES:
            self._kept_bytes += len(buffer)
            self._free.setdefault(len(buffer), []).append(buffer)
