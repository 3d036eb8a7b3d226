"""Java's hashes, by which Kafka orders and places some things."""


def java_hash(text: str) -> int:
    """`String.hashCode()`, as a number of 32 bits without a sign."""
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for index in range(0, len(units), 2):
        value = (31 * value + int.from_bytes(units[index : index + 2], "big")) & 0xFFFFFFFF
    return value


def spread(hash_code: int) -> int:
    """What java.util.HashMap makes of a hash before it takes a bucket."""
    return hash_code ^ (hash_code >> 16)
