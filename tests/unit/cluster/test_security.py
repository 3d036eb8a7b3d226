"""librdkafka's connection keys, read by us."""

from __future__ import annotations

import socket
import ssl
from contextlib import suppress

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

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


def shaken_hands(conf, server, name="localhost"):
    """What a client of this configuration and a server agree on: version and cipher."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        parse_security({"security.protocol": "ssl"} | conf).tls.wrap_bio(to_client, to_server, server_hostname=name),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    for _ in range(5):
        for end in ends:
            with suppress(ssl.SSLWantReadError):
                end.do_handshake()
    return ends[0].version(), ends[0].cipher()[0]


def tls_server(folder, certificate, key, *, ciphers, versions):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_ciphers(ciphers)
    context.minimum_version, context.maximum_version = versions
    (folder / "server.pem").write_bytes(key + certificate)
    context.load_cert_chain(folder / "server.pem")
    return context


@pytest.mark.parametrize("cipher", ["AES256-GCM-SHA384", "AES128-SHA", "ECDHE-RSA-AES128-SHA"])
def test_brokers_that_offer_only_ciphers_that_python_leaves_out(tmp_path, cipher):
    """librdkafka has them; measured with 2.16.1."""
    certificate, key = self_signed(key=rsa.generate_private_key(65537, 2048))
    versions = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_2
    server = tls_server(tmp_path, certificate, key, ciphers=cipher, versions=versions)
    found = shaken_hands({"ssl.ca.pem": certificate.decode()}, server, "127.0.0.1")
    assert found == ("TLSv1.2", cipher)


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion")
def test_a_security_level_that_allows_old_versions(tmp_path):
    certificate, key = self_signed(key=rsa.generate_private_key(65537, 2048))
    versions = ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1
    server = tls_server(tmp_path, certificate, key, ciphers="DEFAULT@SECLEVEL=0", versions=versions)
    conf = {"ssl.ca.pem": certificate.decode()}
    with pytest.raises(ssl.SSLError):
        shaken_hands(conf, server, "127.0.0.1")
    assert shaken_hands(conf | {"ssl.cipher.suites": "DEFAULT@SECLEVEL=0"}, server, "127.0.0.1")[0] == "TLSv1.1"


def test_authorities_of_a_file_and_of_a_text_both_count(tmp_path):
    (tmp_path / "ca.pem").write_bytes(self_signed()[0])
    conf = {"security.protocol": "ssl", "ssl.ca.location": str(tmp_path / "ca.pem"), "ssl.ca.pem": make_pem()[0]}
    assert parse_security(conf).tls.cert_store_stats()["x509"] == 2


def test_comments_of_a_text_of_certificates_may_be_in_any_language():
    certificate, key = make_pem()
    text = f"# Főtanúsítvány, \N{GREEK SMALL LETTER PI}\n{certificate}"
    conf = {"security.protocol": "ssl", "ssl.ca.pem": text, "ssl.certificate.pem": text, "ssl.key.pem": key}
    assert parse_security(conf).tls.cert_store_stats()["x509"] == 1


def test_blanks_before_a_value_do_not_count(tmp_path):
    certificate, key = make_pem(b"hush")
    (tmp_path / "c.pem").write_text(certificate)
    (tmp_path / "k.pem").write_text(key)
    conf = {
        "ssl.ca.location": str(tmp_path / "c.pem"),
        "ssl.certificate.location": str(tmp_path / "c.pem"),
        "ssl.key.location": str(tmp_path / "k.pem"),
        "ssl.key.password": "hush",
        "ssl.endpoint.identification.algorithm": "none",
    }
    tls = parse_security({"security.protocol": "ssl"} | {name: f" {value}" for name, value in conf.items()}).tls
    assert tls.cert_store_stats()["x509"] == 1
    assert not tls.check_hostname


def test_none_is_the_default():
    tls = parse_security(
        {
            "security.protocol": "ssl",
            "ssl.endpoint.identification.algorithm": None,
            "enable.ssl.certificate.verification": None,
            "ssl.ca.pem": None,
        }
    ).tls
    assert tls.check_hostname
    assert tls.verify_mode is ssl.CERT_REQUIRED


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
