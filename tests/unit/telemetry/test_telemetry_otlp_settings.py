"""OTEL_EXPORTER_OTLP_* as OpenTelemetry specifies them; its own exporter reads them with us where it can."""

import argparse

import pytest
from kclient_telemetry.receiver.otlp_options import add_otlp_arguments, otlp_settings
from kclient_telemetry.receiver.otlp_settings import settings_of
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter

HTTP = "http/protobuf"
E = "OTEL_EXPORTER_OTLP_"
M = "OTEL_EXPORTER_OTLP_METRICS_"


@pytest.mark.parametrize(
    ("environment", "endpoint", "protocol"),
    [
        ({}, "http://localhost:4318/v1/metrics", HTTP),
        ({f"{E}ENDPOINT": "https://c:1"}, "https://c:1/v1/metrics", HTTP),
        ({f"{E}ENDPOINT": "https://c:1/"}, "https://c:1/v1/metrics", HTTP),
        ({f"{E}ENDPOINT": "https://c/base"}, "https://c/base/v1/metrics", HTTP),
        ({f"{M}ENDPOINT": "https://c/as/it/is", f"{E}ENDPOINT": "http://x"}, "https://c/as/it/is", HTTP),
        ({f"{M}ENDPOINT": "", f"{E}ENDPOINT": "http://x"}, "http://x/v1/metrics", HTTP),
        ({f"{E}PROTOCOL": "grpc"}, "http://localhost:4317", "grpc"),
        ({f"{E}PROTOCOL": "grpc", f"{E}ENDPOINT": "https://c:4317"}, "https://c:4317", "grpc"),
        ({f"{E}PROTOCOL": "grpc", f"{E}ENDPOINT": "c:4317"}, "https://c:4317", "grpc"),
        ({f"{E}PROTOCOL": "grpc", f"{E}ENDPOINT": "c:4317", f"{E}INSECURE": "TRUE"}, "http://c:4317", "grpc"),
        ({f"{E}PROTOCOL": "grpc", f"{E}ENDPOINT": "unix:/run/c.sock"}, "unix:/run/c.sock", "grpc"),
        ({f"{E}PROTOCOL": "grpc", f"{E}ENDPOINT": "unix:///run/c.sock"}, "unix:///run/c.sock", "grpc"),
        (
            {f"{M}PROTOCOL": "http/protobuf", f"{E}PROTOCOL": "grpc"},
            "http://localhost:4318/v1/metrics",
            "http/protobuf",
        ),
    ],
)
def test_endpoints(environment, endpoint, protocol, monkeypatch):
    found = settings_of(environment)
    assert (found.endpoint, found.protocol) == (endpoint, protocol)
    if protocol == "http/protobuf":
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        assert OTLPMetricExporter()._endpoint == endpoint


def test_everything_else():
    environment = {
        f"{E}HEADERS": "api-key=k%20ey, x = 1 ,",
        f"{E}TIMEOUT": "2500",
        f"{E}COMPRESSION": "none",
        f"{E}CERTIFICATE": "ca.pem",
        f"{E}CLIENT_CERTIFICATE": "c.pem",
        f"{M}CLIENT_KEY": "c.key",
    }
    found = settings_of(environment, headers={"x": "2"})
    assert found.headers == {"api-key": "k ey", "x": "2"}
    assert (found.timeout_ms, found.compress) == (2_500, False)
    assert (found.tls.ca_file, found.tls.certificate_file, found.tls.key_file) == ("ca.pem", "c.pem", "c.key")


@pytest.mark.parametrize(
    ("url", "endpoint", "protocol"),
    [
        ("http://c:4318", "http://c:4318", HTTP),
        ("http://c:4318/", "http://c:4318", HTTP),
        ("https://c/other", "https://c/other", HTTP),
        ("grpc://c:4317", "http://c:4317", "grpc"),
        ("grpcs://c:4317", "https://c:4317", "grpc"),
    ],
)
def test_a_url_goes_before_the_environment(url, endpoint, protocol):
    found = settings_of({f"{E}ENDPOINT": "http://other", f"{E}PROTOCOL": "grpc"}, url)
    assert (found.endpoint, found.protocol) == (endpoint, protocol)


@pytest.mark.parametrize(
    "url", ["http://", "c:4318", "ftp://c", "http://c:99999", "http://[", "grpc://", "", "http://a b"]
)
def test_urls_that_are_none(url):
    with pytest.raises(ValueError, match="write http://HOST:PORT"):
        settings_of({}, url)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("PROTOCOL", "http/json", "write http/protobuf or grpc"),
        ("COMPRESSION", "br", "write gzip or none"),
        ("TIMEOUT", "soon", "write milliseconds"),
        ("TIMEOUT", "0", "write milliseconds"),
        ("HEADERS", "nonsense", "write key=value"),
        ("HEADERS", "a b=1", "no name of a header"),
        ("HEADERS", "a=x%0d%0aEvil: 1", "characters that no header can have"),
        ("HEADERS", "a=%E6%97%A5", "characters that no header can have"),
        ("ENDPOINT", "nonsense", "write http://HOST:PORT"),
    ],
)
def test_variables_that_cannot_be_used_are_named(name, value, words):
    for prefix in (E, M):
        with pytest.raises(ValueError, match=f"{prefix}{name}.*{words}"):
            settings_of({f"{prefix}{name}": value})


def test_a_key_needs_its_certificate():
    with pytest.raises(ValueError, match=r"the key c\.key is of no use without its certificate"):
        settings_of({f"{E}CLIENT_KEY": "c.key"})


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--otlp", "http://c", "--otlp-ca", "ca.pem"], "are for TLS: give https:// or grpcs://"),
        (["--otlp", "http://c", "--otlp-header", "a=\u65e5"], "--otlp-header: the value of a has characters"),
        (["--otlp", "http://c", "--otlp-header", "a b=1"], "--otlp-header: 'a b' is no name"),
        (["--otlp", "https://c", "--otlp-key", "k"], "the key k is of no use"),
    ],
)
def test_options_that_would_do_nothing_or_could_not_be_sent(words, said):
    parser = argparse.ArgumentParser()
    add_otlp_arguments(parser)
    with pytest.raises(ValueError, match=said):
        otlp_settings(parser.parse_args(words), {})


def test_what_a_log_may_say_of_an_endpoint():
    assert settings_of({}, "https://user:secret@c:1/v1/metrics?token=secret").address == "https://c:1/v1/metrics"
