"""A server that says the same bytes to whoever connects, whatever is asked, and hangs up."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress


@contextmanager
def answering(answer: bytes) -> Iterator[int]:
    """The port of such a server.

    Args:
        answer: what it says.
    """
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            with suppress(OSError):  # closed
                while True:
                    with listening.accept()[0] as connection:
                        connection.recv(65_536)
                        connection.sendall(answer)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listening.getsockname()[1]
        listening.shutdown(socket.SHUT_RDWR)
        thread.join(60)
