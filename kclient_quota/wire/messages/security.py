"""Who may speak: SaslHandshake, SaslAuthenticate and SCRAM credentials."""

# ruff: noqa: D101, D106
# The classes are tables and carry Apache Kafka's own names; `kclient_quota.wire.schema` explains the columns.

from __future__ import annotations

from typing import TYPE_CHECKING

from kclient_quota.wire.schema import Request, Response, Struct, field

if TYPE_CHECKING:
    from kclient_quota.wire.schema import Bytes, Int8, Int16, Int32, Int64, String


class SaslHandshakeRequest(Request, key=17, versions="0-1"):
    mechanism: String = field("0+")


class SaslHandshakeResponse(Response, key=17, versions="0-1"):
    error_code: Int16 = field("0+")
    mechanisms: list[String] = field("0+")


class SaslAuthenticateRequest(Request, key=36, versions="0-2", flexible="2+"):
    auth_bytes: Bytes = field("0+")


class SaslAuthenticateResponse(Response, key=36, versions="0-2", flexible="2+"):
    error_code: Int16 = field("0+")
    error_message: String | None = field("0+", null="0+")
    auth_bytes: Bytes = field("0+")
    session_lifetime_ms: Int64 = field("1+", ignorable=True)


class DescribeUserScramCredentialsRequest(Request, key=50, versions="0", flexible="0+"):
    users: list[DescribeUserScramCredentialsRequest.UserName] | None = field("0+", null="0+")

    class UserName(Struct):
        name: String = field("0+")


class DescribeUserScramCredentialsResponse(Response, key=50, versions="0", flexible="0+"):
    throttle_time_ms: Int32 = field("0+")
    error_code: Int16 = field("0+")
    error_message: String | None = field("0+", null="0+")
    results: list[DescribeUserScramCredentialsResponse.DescribeUserScramCredentialsResult] = field("0+")

    class DescribeUserScramCredentialsResult(Struct):
        user: String = field("0+")
        error_code: Int16 = field("0+")
        error_message: String | None = field("0+", null="0+")
        credential_infos: list[DescribeUserScramCredentialsResponse.CredentialInfo] = field("0+")

    class CredentialInfo(Struct):
        mechanism: Int8 = field("0+")
        iterations: Int32 = field("0+")


class AlterUserScramCredentialsRequest(Request, key=51, versions="0", flexible="0+"):
    deletions: list[AlterUserScramCredentialsRequest.ScramCredentialDeletion] = field("0+")
    upsertions: list[AlterUserScramCredentialsRequest.ScramCredentialUpsertion] = field("0+")

    class ScramCredentialDeletion(Struct):
        name: String = field("0+")
        mechanism: Int8 = field("0+")

    class ScramCredentialUpsertion(Struct):
        name: String = field("0+")
        mechanism: Int8 = field("0+")
        iterations: Int32 = field("0+")
        salt: Bytes = field("0+")
        salted_password: Bytes = field("0+")


class AlterUserScramCredentialsResponse(Response, key=51, versions="0", flexible="0+"):
    throttle_time_ms: Int32 = field("0+")
    results: list[AlterUserScramCredentialsResponse.AlterUserScramCredentialsResult] = field("0+")

    class AlterUserScramCredentialsResult(Struct):
        user: String = field("0+")
        error_code: Int16 = field("0+")
        error_message: String | None = field("0+", null="0+")
