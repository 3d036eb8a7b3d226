"""`--command-config`: a properties file as Apache Kafka's own tools take it, turned into librdkafka's keys."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from kclient_quota.errors import ConfigError

_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_LOGIN = re.compile(r"""(\w+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s;"']+))""")
_STORES = (
    ("ssl.truststore.location", "ssl.truststore.type", "ssl.ca.location"),
    ("ssl.keystore.location", "ssl.keystore.type", "ssl.certificate.location"),
)
_RENAMED = {
    "ssl.truststore.certificates": "ssl.ca.pem",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
}


def read_command_config(path: Path) -> dict[str, Any]:
    """A client configuration from a properties file, with Java's keys or librdkafka's.

    Raises:
        ConfigError: it cannot be read, or holds what a Python client cannot use; the message names the remedy.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")  # Windows' editors begin a file with a mark of their own
    except (OSError, ValueError) as error:  # no text, or a name that no file can have
        raise ConfigError(f"--command-config {path}: {error}") from error
    return to_librdkafka(dict(parse_properties(text)))


def parse_properties(text: str) -> Iterator[tuple[str, str]]:
    r"""Keys and values of a Java properties file: `=`, `:` or blanks between them, `#` and `!`, `\` at a line's end."""
    lines = iter(re.split(r"\r\n?|\n", text))  # Python knows more ends of lines, which a password may have in it
    for raw in lines:
        line = raw.lstrip()
        if not line or line[0] in "#!":
            continue
        while _is_continued(line):
            line = line[:-1] + next(lines, "").lstrip()
        yield _split(line)


def _is_continued(line: str) -> bool:
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _split(line: str) -> tuple[str, str]:
    key = re.match(r"(?:[^\\\s=:]|\\.)*", line)
    assert key is not None  # it matches the empty text
    rest = re.sub(r"^\s*[=:]?\s*", "", line[key.end() :])
    return _unescape(key[0]), _unescape(rest)


def _unescape(text: str) -> str:
    def one(found: re.Match[str]) -> str:
        code = found[1]
        return chr(int(code[1:], 16)) if len(code) > 1 else _ESCAPES.get(code, code)

    return re.sub(r"\\(u[0-9A-Fa-f]{4}|.)", one, text)


def to_librdkafka(properties: Mapping[str, str]) -> dict[str, Any]:
    """Java's keys for TLS and SASL by librdkafka's names; everything else as it is.

    Raises:
        ConfigError: a key store that only Java reads, or a login module's line that cannot be read.
    """
    conf: dict[str, Any] = {_RENAMED.get(key, key): value for key, value in properties.items()}
    for location, kind, name in _STORES:
        path, store_type = conf.pop(location, None), conf.pop(kind, "JKS")
        if path is None:
            continue
        if str(store_type).upper() != "PEM":
            raise ConfigError(
                f"{location}: {store_type} is a format that only Java reads; convert it to PEM (keytool, openssl), "
                f"and set {kind}=PEM"
            )
        conf[name] = path
    if "ssl.certificate.location" in conf:
        conf.setdefault("ssl.key.location", conf["ssl.certificate.location"])
    if conf.get("ssl.endpoint.identification.algorithm") == "":
        conf["ssl.endpoint.identification.algorithm"] = "none"
    login = conf.pop("sasl.jaas.config", None)
    if login is not None:
        conf.update(_login(str(login)))
    return conf


def _login(line: str) -> dict[str, str]:
    """User and password of `PlainLoginModule` and `ScramLoginModule`."""
    options = {
        found[1]: re.sub(r"\\(.)", r"\1", next(part for part in found.groups()[1:] if part is not None))
        for found in _LOGIN.finditer(line)
    }
    if "username" not in options or "password" not in options:
        raise ConfigError('sasl.jaas.config: it needs username="..." and password="..." (PLAIN or SCRAM)')
    return {"sasl.username": options["username"], "sasl.password": options["password"]}
