"""The server's side of SCRAM (RFC 5802, KIP-84), as Kafka's `ScramSaslServer` and `ScramMessages` speak it.

Names and passwords are compared as they are, without SASLprep. Nor are names beyond ASCII understood: such a user
cannot log in with SCRAM, with Kafka as here. The nonce is handed in.
"""

import base64
import hashlib
import hmac
import re
from collections.abc import Callable

from kclient_quota.broker.security.scram_credentials import ScramCredential, algorithm_of

# ASCII but for commas, which part the fields, and in names `=`, which begins an escaped character. Possessive (`++`):
# nothing is tried twice of half a megabyte, which is as much as a stranger may send.
_NAME = r"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]++|=2C|=3D)++"
_VALUE = r"[\x01-\x2b\x2d-\x7f]++"
_NONCE = r"[\x21-\x2b\x2d-\x7e]++"
_BASE64 = r"(?:[a-zA-Z0-9/+]{4})*+(?:[a-zA-Z0-9/+]{3}=|[a-zA-Z0-9/+]{2}==)?"
_EXTENSIONS = rf"(?:,[A-Za-z]++={_VALUE})*"
_CLIENT_FIRST = re.compile(
    rf"n,(?:a=(?P<authorization_id>{_NAME}))?,(?:m={_VALUE},)?(?P<bare>n=(?P<name>{_NAME}),r=(?P<nonce>{_NONCE}){_EXTENSIONS})"
)
_CLIENT_FINAL = re.compile(rf"(?P<without_proof>c={_BASE64},r=(?P<nonce>{_NONCE})){_EXTENSIONS},p=(?P<proof>{_BASE64})")


class ScramError(Exception):
    """The client is not let in. What it says is for the client; with nothing said Kafka's usual words are."""


class ScramServer:
    """One log-in: `first`, then `final`.

    Args:
        mechanism: such as "SCRAM-SHA-256".
        credentials: of a user; None for who is unknown.
        nonce: printable random characters.

    Attributes:
        user: who wants to log in, known after `first`.
    """

    def __init__(self, mechanism: str, credentials: Callable[[str], ScramCredential | None], nonce: str) -> None:
        self._algorithm = algorithm_of(mechanism)
        self._credentials = credentials
        self._nonce = nonce
        self._credential: ScramCredential | None = None
        self._said = ""
        self.user = ""

    @property
    def has_begun(self) -> bool:
        """Whether `first` is behind us."""
        return self._credential is not None

    def first(self, message: bytes) -> bytes:
        """The client says who it is; is told salt and iterations.

        Raises:
            ScramError: that is no such message, or no such user.
        """
        said = _CLIENT_FIRST.fullmatch(_text(message))
        if said is None:
            raise ScramError
        self.user = said["name"].replace("=2C", ",").replace("=3D", "=")
        credential = self._credentials(self.user)
        if credential is None:
            raise ScramError
        if said["authorization_id"] not in {None, self.user}:
            raise ScramError(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        self._credential = credential
        self._nonce = said["nonce"] + self._nonce
        answer = f"r={self._nonce},s={base64.b64encode(credential.salt).decode()},i={credential.iterations}"
        self._said = f"{said['bare']},{answer}"
        return answer.encode()

    def final(self, message: bytes) -> bytes:
        """The client proves that it knows the password; is proven that we know it as well.

        Raises:
            ScramError: it does not.
        """
        said = _CLIENT_FINAL.fullmatch(_text(message))
        if said is None or said["nonce"] != self._nonce or self._credential is None:
            raise ScramError
        all_said = f"{self._said},{said['without_proof']}".encode()
        signature = hmac.digest(self._credential.stored_key, all_said, self._algorithm)
        proof = base64.b64decode(said["proof"])
        if len(proof) != len(signature):
            raise ScramError
        client_key = bytes(ours ^ theirs for ours, theirs in zip(signature, proof, strict=True))
        if not hmac.compare_digest(hashlib.new(self._algorithm, client_key).digest(), self._credential.stored_key):
            raise ScramError
        return b"v=" + base64.b64encode(hmac.digest(self._credential.server_key, all_said, self._algorithm))


def _text(message: bytes) -> str:
    try:
        return message.decode()
    except UnicodeDecodeError as error:
        raise ScramError from error
