"""The page's server: whoever hangs up is no news."""

import errno
import socket
import struct

import pytest
from kclient_telemetry.receiver.endpoint import PrometheusEndpoint
from kclient_telemetry.receiver.exposition import Family


def test_a_scraper_that_hangs_up_leaves_no_traceback(capfd):
    families = [Family(f"m{number}", "gauge", [("", {}, 1.0)], "x" * 1_000) for number in range(5_000)]
    endpoint = PrometheusEndpoint(more=lambda found: families)
    for _ in range(3):
        with socket.create_connection(("127.0.0.1", endpoint.port)) as scraper:
            scraper.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            scraper.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
            scraper.recv(100)
    with socket.create_connection(("127.0.0.1", endpoint.port)) as scraper:
        scraper.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert scraper.recv(20).startswith(b"HTTP/1.1 200")
    endpoint.close(5_000)
    assert "Traceback" not in capfd.readouterr().err


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "::"])
def test_it_listens_on_addresses_of_both_kinds(host):
    if ":" in host and not socket.has_ipv6:
        pytest.skip("this Python has no IPv6")
    try:
        endpoint = PrometheusEndpoint(host)
    except OSError as error:
        if error.errno not in {errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT}:
            raise
        pytest.skip(f"this machine has no IPv6: {error}")
    with socket.create_connection(("::1" if ":" in host else "127.0.0.1", endpoint.port)) as scraper:
        scraper.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert scraper.recv(20).startswith(b"HTTP/1.1 200")
    endpoint.close(5_000)
