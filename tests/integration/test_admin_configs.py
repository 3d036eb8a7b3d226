import pytest

from kclient_quota.broker import EmbeddedBroker
from kclient_quota.cli import quotas
from kclient_quota.cli.configs import java_double


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1.0, "1.0"),
        (12.5, "12.5"),
        (1024.0, "1024.0"),
        (9_999_999.0, "9999999.0"),
        (1e7, "1.0E7"),
        (123_456_789.0, "1.23456789E8"),
        (1_048_576.0 * 10, "1.048576E7"),
        (0.001, "0.001"),
        (0.0001234, "1.234E-4"),
        (2.0**63, "9.223372036854776E18"),
        (float("inf"), "Infinity"),
    ],
)
def test_numbers_as_java_prints_them(value, text):
    assert java_double(value) == text


@pytest.fixture(scope="module")
def broker():
    with EmbeddedBroker() as running:
        yield running


@pytest.fixture
def run(broker, capsys):
    def command(*arguments, status=0):
        got = quotas.main(["configs", "--bootstrap-server", broker.bootstrap_servers, *arguments])
        out, err = capsys.readouterr()
        assert got == status, err
        return (out if status == 0 else err).rstrip("\n")

    return command


ADDED = "--add-config=producer_byte_rate=10485760,consumer_byte_rate=[123456789]"


@pytest.mark.parametrize(
    ("who", "add", "done", "described"),
    [
        (
            ["--entity-type=users", "--entity-name=user1"],
            ADDED,
            "Completed updating config for user user1.",
            "user-principal 'user1' are consumer_byte_rate=1.23456789E8, producer_byte_rate=1.048576E7",
        ),
        (
            ["--user-defaults"],
            "--add-config=producer_byte_rate=1024",
            "Completed updating default config for users in the cluster.",
            "the default user-principal are producer_byte_rate=1024.0",
        ),
        (
            ["--client=clientA"],
            "--add-config=request_percentage=12.5",
            "Completed updating config for client clientA.",
            "client-id 'clientA' are request_percentage=12.5",
        ),
        (
            ["--user=user1", "--client=clientA"],
            "--add-config=request_percentage=200,producer_byte_rate=1024,consumer_byte_rate=2048",
            "Completed updating config for user user1.",
            (
                "user-principal 'user1', client-id 'clientA' are "
                "consumer_byte_rate=2048.0, request_percentage=200.0, producer_byte_rate=1024.0"
            ),
        ),
        (
            ["--entity-type=users", "--entity-name=user1", "--entity-type=clients", "--entity-default"],
            "--add-config=producer_byte_rate=1024",
            "Completed updating config for user user1.",
            "user-principal 'user1', the default client-id are producer_byte_rate=1024.0",
        ),
        (
            ["--user-defaults", "--client-defaults"],
            "--add-config=producer_byte_rate=1024",
            "Completed updating default config for clients in the cluster.",
            "the default user-principal, the default client-id are producer_byte_rate=1024.0",
        ),
        (
            ["--ip=10.0.0.1"],
            "--add-config=connection_creation_rate=10",
            "Completed updating config for ip 10.0.0.1.",
            "ip '10.0.0.1' are connection_creation_rate=10.0",
        ),
    ],
)
def test_what_kafkas_tool_prints(run, who, add, done, described):
    assert run("--alter", *who, add) == done
    assert run("--describe", *who) == f"Quota configs for {described}"


def test_what_it_refuses(run):
    who = ["--user=nobody"]
    assert run("--describe", *who) == ""
    assert "Invalid config(s): request_percentage" in run(
        "--alter", *who, "--delete-config=request_percentage", status=1
    )
    assert "Unexpected config names: bogus" in run("--alter", *who, "--add-config=bogus=1", status=1)
    assert "must be specified" in run("--alter", *who, status=2)
    assert "must be specified" in run("--alter", "--entity-type=users", "--add-config=producer_byte_rate=1", status=2)
    assert "no entity is given" in run("--describe", status=2)
    assert "Duplicate entity type" in run("--describe", "--user=a", "--entity-type=users", status=2)
    assert "Cannot parse" in run("--alter", *who, "--add-config=producer_byte_rate=x", status=2)
    assert "need an --entity-type" in run("--describe", "--entity-name=a", status=2)


def test_a_quota_that_is_deleted_is_gone(run):
    run("--alter", "--user=gone", "--add-config=producer_byte_rate=5")
    assert "gone" in run("--describe", "--entity-type=users")
    run("--alter", "--user=gone", "--delete-config=producer_byte_rate")
    assert "gone" not in run("--describe", "--entity-type=users")
