"""librdkafka's connection keys, read by us."""

from __future__ import annotations

import socket
import ssl

import pytest

from kclient_quota.cluster.security import parse_bootstrap_servers, parse_security
from kclient_quota.errors import ConfigError
from tests.certificates import self_signed


def make_pem(password=None):
    return [part.decode() for part in self_signed(password)]


@pytest.mark.parametrize(
    ("text", "addresses"),
    [
        ("a:1", [("a", 1)]),
        ("a, b:2 ,c:3,", [("a", 9092), ("b", 2), ("c", 3)]),
        ("PLAINTEXT://a:1,plaintext://b", [("a", 1), ("b", 9092)]),
        ("PLAINTEXT://a:1/,Plaintext://b:2/path/x,c:3/", [("a", 1), ("b", 2), ("c", 3)]),
        ("[::1]:9093,[::1]", [("::1", 9093), ("::1", 9092)]),
        ("fe80::1", [("fe80::1", 9092)]),
        ("[::1]9095", [("::1", 9092)]),
        (":9095,PLAINTEXT://", [("localhost", 9095), ("localhost", 9092)]),
        ("a:9095abc,b: 9095,c:+9095,d:09095", [(host, 9095) for host in "abcd"]),
        ("a:74631,b:-56441", [("a", 9095), ("b", 9095)]),
        ("a:b,b:0,c:,[::1,d:1", [("d", 1)]),
        ("a:1,SSL://b:2,c:3", [("a", 1)]),
        ("a:1,://b:2,c:3", [("a", 1)]),
    ],
)
def test_addresses_as_librdkafka_reads_them(text, addresses):
    """Measured with librdkafka 2.16.1 and a broker at localhost:9095."""
    assert parse_bootstrap_servers({"bootstrap.servers": text}) == addresses
    assert parse_bootstrap_servers({"metadata.broker.list": text}) == addresses


def test_addresses_of_the_protocol():
    conf = {"bootstrap.servers": "SASL_SSL://a:1,sasl_ssl://b,c", "security.protocol": "SASL_SSL"}
    assert parse_bootstrap_servers(conf) == [("a", 1), ("b", 9092), ("c", 9092)]


@pytest.mark.parametrize("text", ["SSL://a:1", "http://a:1", "://a:1", "SSL://a:1,b:2"])
def test_addresses_of_another_protocol(text):
    with pytest.raises(ConfigError, match=r"bootstrap\.servers: '.*://a:1' is not for security\.protocol=plaintext"):
        parse_bootstrap_servers({"bootstrap.servers": text})


@pytest.mark.parametrize(
    ("conf", "family"),
    [
        ({}, socket.AF_UNSPEC),
        ({"broker.address.family": "v4"}, socket.AF_INET),
        ({"broker.address.family": "v6"}, socket.AF_INET6),
    ],
)
def test_only_addresses_of_the_family_that_librdkafka_uses(conf, family):
    assert parse_security(conf).settings("localhost", 9092).family == family


def test_no_such_family():
    with pytest.raises(ConfigError, match=r"broker\.address\.family='v5' is unknown; use one of any, v4, v6"):
        parse_security({"broker.address.family": "v5"})


@pytest.mark.parametrize("text", ["a:b", "a:", ":", "[::1", "[::1:9092", "a:0", "a:65536", "a:b,c:d"])
def test_malformed_addresses(text):
    with pytest.raises(ConfigError, match=r"bootstrap\.servers: .* write host:port"):
        parse_bootstrap_servers({"bootstrap.servers": text})


@pytest.mark.parametrize("conf", [{}, *({"bootstrap.servers": text} for text in ("", None, " ", ",", " , ,"))])
def test_missing_addresses(conf):
    with pytest.raises(ConfigError, match=r"bootstrap\.servers is missing"):
        parse_bootstrap_servers(conf)


def test_plain_text_is_the_default():
    security = parse_security({})
    assert (security.client_id, security.tls, security.sasl) == ("rdkafka", None, None)
    settings = security.settings("h", 1)
    assert (settings.peer, settings.client_id) == ("h:1", "rdkafka")


def test_keys_of_other_protocols_are_ignored_as_librdkafka_does():
    security = parse_security({"sasl.mechanism": "PLAIN", "ssl.ca.location": "/nonexistent", "linger.ms": 5})
    assert (security.tls, security.sasl) == (None, None)


@pytest.mark.parametrize("key", ["sasl.mechanism", "sasl.mechanisms"])
def test_scram_over_tls(key):
    security = parse_security(
        {
            "security.protocol": "SASL_SSL",
            key: "scram-sha-512",
            "sasl.username": "alice",
            "sasl.password": "secret",
            "client.id": "app",
        }
    )
    assert (security.sasl.mechanism, security.sasl.username, security.sasl.password) == (
        "SCRAM-SHA-512",
        "alice",
        "secret",
    )
    assert security.client_id == "app"
    assert security.tls.check_hostname
    assert security.tls.verify_mode is ssl.CERT_REQUIRED
    assert "secret" not in repr(security)


def test_nonces_differ():
    sasl = parse_security(
        {
            "security.protocol": "sasl_plaintext",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "a",
            "sasl.password": "b",
        }
    ).sasl
    assert sasl.credentials().nonce != sasl.credentials().nonce


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (("tok", 12345.0), ("tok", {})),
        (("tok", 12345.0, "principal"), ("tok", {})),
        (("tok", 12345.0, "principal", {"tenant": "a"}), ("tok", {"tenant": "a"})),
    ],
)
def test_tokens_come_from_oauth_cb(answer, expected):
    asked = []

    def oauth_cb(config):
        asked.append(config)
        return answer

    sasl = parse_security(
        {
            "security.protocol": "sasl_plaintext",
            "sasl.mechanism": "OAUTHBEARER",
            "oauth_cb": oauth_cb,
            "sasl.oauthbearer.config": "scope=x",
        }
    ).sasl
    credentials = sasl.credentials()
    assert (credentials.token, credentials.extensions) == expected
    assert asked == ["scope=x"]


def test_verification_can_be_relaxed():
    tls = parse_security({"security.protocol": "ssl", "ssl.endpoint.identification.algorithm": "none"}).tls
    assert not tls.check_hostname
    assert tls.verify_mode is ssl.CERT_REQUIRED
    tls = parse_security({"security.protocol": "ssl", "enable.ssl.certificate.verification": "false"}).tls
    assert not tls.check_hostname
    assert tls.verify_mode is ssl.CERT_NONE


@pytest.mark.parametrize("password", [None, b"hush"])
def test_certificates_from_text_and_from_files(tmp_path, password):
    certificate, key = make_pem(password)
    conf = {"security.protocol": "ssl", "ssl.ca.pem": certificate}
    secret = {} if password is None else {"ssl.key.password": "hush"}
    tls = parse_security(conf | {"ssl.certificate.pem": certificate, "ssl.key.pem": key} | secret).tls
    assert tls.cert_store_stats()["x509"] == 1
    (tmp_path / "c.pem").write_text(certificate)
    (tmp_path / "k.pem").write_text(key)
    files = {
        "ssl.ca.location": str(tmp_path / "c.pem"),
        "ssl.certificate.location": str(tmp_path / "c.pem"),
        "ssl.key.location": str(tmp_path / "k.pem"),
    }
    tls = parse_security({"security.protocol": "ssl"} | files | secret).tls
    assert tls.cert_store_stats()["x509"] == 1
    parse_security({"security.protocol": "ssl", "ssl.ca.location": str(tmp_path)})


def test_a_wrong_key_password_is_named():
    certificate, key = make_pem(b"hush")
    conf = {"security.protocol": "ssl", "ssl.ca.pem": certificate, "ssl.certificate.pem": certificate}
    for wrong in ({}, {"ssl.key.password": "loud"}):
        with pytest.raises(ConfigError, match=r"ssl\.key\.password cannot be used"):
            parse_security(conf | {"ssl.key.pem": key} | wrong)


@pytest.mark.parametrize(
    ("conf", "problem"),
    [
        ({"security.protocol": "tls"}, r"security\.protocol='tls' is unknown; use one of plaintext, ssl"),
        ({"security.protocol": "sasl_ssl"}, "sasl.mechanism=GSSAPI is not spoken"),
        (
            {"security.protocol": "sasl_plaintext", "sasl.mechanism": "PLAIN"},
            r"needs sasl\.username and sasl\.password",
        ),
        ({"security.protocol": "sasl_plaintext", "sasl.mechanism": "OAUTHBEARER"}, "needs oauth_cb"),
        ({"security.protocol": "ssl", "ssl.keystore.location": "x.p12"}, r"ssl\.keystore\.location cannot be used"),
        ({"security.protocol": "ssl", "ssl.ca.location": "/nonexistent"}, r"ssl\.ca\.location cannot be used"),
        ({"security.protocol": "ssl", "ssl.ca.pem": "nonsense"}, r"ssl\.ca\.pem cannot be used"),
        ({"security.protocol": "ssl", "ssl.key.pem": "x"}, r"ssl\.key\.\* is set without"),
        ({"security.protocol": "ssl", "ssl.cipher.suites": "nonsense"}, r"ssl\.cipher\.suites cannot be used"),
        ({"security.protocol": "ssl", "enable.ssl.certificate.verification": "maybe"}, "neither true nor false"),
        ({"security.protocol": "ssl", "ssl.endpoint.identification.algorithm": "x"}, "use https or none"),
    ],
)
def test_what_cannot_be_used_is_named(conf, problem):
    with pytest.raises(ConfigError, match=problem):
        parse_security(conf)
