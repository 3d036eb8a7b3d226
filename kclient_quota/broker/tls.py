"""The server's side of TLS."""

import ssl
from pathlib import Path

from kclient_quota.errors import ConfigError


def server_context(pem: Path) -> ssl.SSLContext:
    """A context that shows the certificate in `pem` (chain and key in one file).

    Raises:
        ConfigError: the file cannot be read or holds no certificate and key.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(pem)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"tls_pem {pem}: {error}; it must hold a certificate chain and its key") from error
    return context
