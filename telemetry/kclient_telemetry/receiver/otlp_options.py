"""`--otlp` and its kin, for commands that forward telemetry to collectors."""

import argparse
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kclient_telemetry.receiver.otlp_settings import OtlpSettings


def add_otlp_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    group = parser.add_argument_group(
        "OTLP", "Whatever is not given is taken from OTEL_EXPORTER_OTLP_* where these are set."
    )
    group.add_argument(
        "--otlp",
        action="append",
        nargs="?",
        const="",
        default=[],
        metavar="URL",
        help="forward client telemetry (KIP-714) to this collector, such as http://127.0.0.1:4318 (OTLP over HTTP), "
        "https://..., grpc://127.0.0.1:4317 or grpcs://... (TLS); may be repeated; without a URL to "
        "OTEL_EXPORTER_OTLP_ENDPOINT",
    )
    group.add_argument(
        "--otlp-header",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="with every export; may be repeated",
    )
    group.add_argument("--otlp-ca", metavar="FILE", help="PEM of the authorities to trust")
    group.add_argument("--otlp-certificate", metavar="FILE", help="PEM of our certificate, for mutual TLS")
    group.add_argument("--otlp-key", metavar="FILE", help="PEM of its key")


def otlp_settings(options: argparse.Namespace, environment: Mapping[str, str]) -> "list[OtlpSettings]":
    """What the options ask for, one for each `--otlp`.

    Raises:
        ValueError: an option or a variable of the environment cannot be used; the message names it.
    """
    from kclient_telemetry.receiver.otlp_senders import TlsFiles  # noqa: PLC0415 - protobuf, slow to load for --help
    from kclient_telemetry.receiver.otlp_settings import checked_headers, settings_of  # noqa: PLC0415 - as above

    headers = {}
    for text in options.otlp_header:
        key, found, value = text.partition("=")
        if not key or not found:
            raise ValueError(f"--otlp-header {text}: write it as KEY=VALUE")
        headers[key] = value
    checked_headers(headers, "--otlp-header")
    tls = TlsFiles(options.otlp_ca, options.otlp_certificate, options.otlp_key)
    try:
        found_settings = [settings_of(environment, url or None, headers=headers, tls=tls) for url in options.otlp]
    except ValueError as error:
        raise ValueError(f"--otlp {error}") from error
    if tls != TlsFiles() and not any(each.endpoint.startswith("https:") for each in found_settings):
        raise ValueError("--otlp-ca, --otlp-certificate and --otlp-key are for TLS: give https:// or grpcs://")
    return found_settings
