"""What a JVM in the same process raises; a Spark Connect client comes without py4j, and raises PySpark's own errors."""

try:
    from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped] # py4j ships no types
except ImportError:

    class Py4JError(Exception):  # type: ignore[no-redef] # a stand-in that nothing raises
        """Of a call into the JVM."""

    class Py4JJavaError(Exception):  # type: ignore[no-redef] # as above
        """The same, with what Java raised."""


__all__ = ["Py4JError", "Py4JJavaError"]
