import pytest

from kclient_quota.cli.properties import parse_properties, read_command_config, to_librdkafka
from kclient_quota.errors import ConfigError


def test_javas_rules():
    text = r"""# comment = x
! also

  a=1
b : 2 = 3
c 4
d=one\
   two\\
e\=f = tab\there \u0041
empty=
alone"""
    assert dict(parse_properties(text)) == {
        "a": "1",
        "b": "2 = 3",
        "c": "4",
        "d": "onetwo\\",
        "e=f": "tab\there A",
        "empty": "",
        "alone": "",
    }


def test_a_file_for_scram_over_tls(tmp_path):
    path = tmp_path / "admin.properties"
    path.write_text(
        "security.protocol=SASL_SSL\n"
        "sasl.mechanism=SCRAM-SHA-512\n"
        "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required \\\n"
        '  username="alice" \\\n'
        '  password="a\\\\"b;=c";\n'
        "ssl.truststore.type=PEM\n"
        "ssl.truststore.location=/etc/ca.pem\n"
        "ssl.endpoint.identification.algorithm=\n"
        "client.id=me\n"
    )
    assert read_command_config(path) == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "alice",
        "sasl.password": 'a"b;=c',
        "ssl.ca.location": "/etc/ca.pem",
        "ssl.endpoint.identification.algorithm": "none",
        "client.id": "me",
    }


def test_a_file_of_a_windows_editor(tmp_path):
    path = tmp_path / "admin.properties"
    path.write_bytes(b"\xef\xbb\xbfsecurity.protocol=SASL_SSL\r\nclient.id=me\r\n")
    assert read_command_config(path) == {"security.protocol": "SASL_SSL", "client.id": "me"}


def test_only_javas_ends_of_lines_end_a_line():
    text = "a=1\x0b2\x0c3\x1c4\x855\u20286\rb=7\r\n\nc=8\\\r\n  9"
    assert dict(parse_properties(text)) == {"a": "1\x0b2\x0c3\x1c4\x855\u20286", "b": "7", "c": "89"}


def test_pem_key_stores_and_librdkafkas_own_keys():
    assert to_librdkafka({"ssl.keystore.type": "PEM", "ssl.keystore.location": "/k.pem"}) == {
        "ssl.certificate.location": "/k.pem",
        "ssl.key.location": "/k.pem",
    }
    inline = {"ssl.truststore.certificates": "C", "ssl.keystore.certificate.chain": "D", "ssl.keystore.key": "E"}
    assert to_librdkafka({**inline, "ssl.truststore.type": "PEM"}) == {
        "ssl.ca.pem": "C",
        "ssl.certificate.pem": "D",
        "ssl.key.pem": "E",
    }
    assert to_librdkafka({"sasl.username": "a", "ssl.ca.location": "x"}) == {
        "sasl.username": "a",
        "ssl.ca.location": "x",
    }


@pytest.mark.parametrize(
    ("properties", "words"),
    [
        ({"ssl.truststore.location": "/x.jks"}, "ssl.truststore.location: JKS is a format that only Java reads"),
        ({"ssl.keystore.location": "/x", "ssl.keystore.type": "PKCS12"}, "PKCS12"),
        ({"sasl.jaas.config": "x.OAuthBearerLoginModule required;"}, "needs username"),
    ],
)
def test_what_only_java_can_use(properties, words):
    with pytest.raises(ConfigError, match=words):
        to_librdkafka(properties)


def test_a_file_that_cannot_be_read(tmp_path):
    with pytest.raises(ConfigError, match="--command-config"):
        read_command_config(tmp_path)
    (tmp_path / "x").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="--command-config"):
        read_command_config(tmp_path / "x")
