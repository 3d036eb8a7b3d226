"""`kafka-quotas` as KIP-546's draft prints it, on the embedded broker."""

import json

import pytest
import yaml

from kclient_quota.broker import EmbeddedBroker
from kclient_quota.cli import quotas

PAIR = "user={},client-id=my-client"


@pytest.fixture
def broker():
    with EmbeddedBroker(brokers=2, topics={"orders": 4}) as running:
        yield running


@pytest.fixture
def run(broker, capsys):
    def command(*arguments, status=0):
        got = quotas.main(["--bootstrap-server", broker.bootstrap_servers, *arguments])
        out, err = capsys.readouterr()
        assert got == status, err
        return out if status == 0 else err

    return command


@pytest.fixture
def drafted(run):
    """The configuration of the draft's examples, of one unit."""
    run("--alter", "--names", PAIR.format("user-two"), "--add", "consumer_byte_rate=200,producer_byte_rate=10000000")
    run("--alter", "--names", PAIR.format("user-one"), "--add", "producer_byte_rate:broker_bps=2000000")
    defaults = "consumer_byte_rate=100,producer_byte_rate:broker_bps=500000"
    run("--alter", "--names=client-id=my-client", "--defaults=user", f"--add={defaults}")
    return run


ONE = "{user=user-one, client-id=my-client}\nproducer_byte_rate:broker_bps=2000000\n"
TWO = (
    "{user=user-two, client-id=my-client}\nconsumer_byte_rate:broker_bps=200\nproducer_byte_rate:broker_bps=10000000\n"
)
DEFAULT = (
    "{user=<default>, client-id=my-client}\nconsumer_byte_rate:broker_bps=100\nproducer_byte_rate:broker_bps=500000\n"
)


def test_list_of_the_draft(drafted):
    assert drafted("--list", "--names=client-id=my-client") == f"{ONE}\n{TWO}\n{DEFAULT}"
    assert drafted("--list", "--prefix=user=user-") == f"{ONE}\n{TWO}"
    assert drafted("--list") == f"{ONE}\n{TWO}\n{DEFAULT}"
    assert drafted("--list", "--defaults=user") == DEFAULT
    assert drafted("--list", "--names=user=nobody") == ""


def test_describe_of_the_draft(drafted):
    assert drafted("--describe", "--names=user=user-one,client-id=my-client") == (
        "consumer_byte_rate:broker_bps=100 {user=<default>, client-id=my-client}\n"
        "producer_byte_rate:broker_bps=2000000 {user=user-one, client-id=my-client}\n"
    )
    assert drafted("--describe", "--names=user=user-one,client-id=my-client", "--include-overrides") == (
        "consumer_byte_rate:broker_bps=100 {user=<default>, client-id=my-client}\n"
        "producer_byte_rate:broker_bps=2000000 {user=user-one, client-id=my-client}\n"
        "*producer_byte_rate:broker_bps=500000 {user=<default>, client-id=my-client}\n"
    )
    assert drafted("--describe", "--names=client-id=other") == ""


def test_alter_of_the_draft(drafted, broker):
    who = ["--names=client-id=my-client", "--defaults=user"]
    change = ["--add=producer_byte_rate:shares=100", "--delete=producer_byte_rate:broker_bps"]
    err = drafted("--alter", *who, *change, status=2)
    assert "producer_byte_rate:shares needs a capacity: give --capacity producer_byte_rate=NUMBER" in err
    assert drafted("--alter", *who, *change, "--capacity", "3000000") == ""
    # the only shares are the whole capacity
    assert drafted("--list", *who) == (
        "{user=<default>, client-id=my-client}\n"
        "consumer_byte_rate:broker_bps=100\n"
        "producer_byte_rate:broker_bps=3000000\n"
        "producer_byte_rate:shares=100\n"
    )
    # somebody else's shares make these fewer
    drafted("--alter", "--names=user=new", "--add=producer_byte_rate:shares=50")
    listed = json.loads(drafted("--list", "--output=json"))
    enforced = {tuple(each["entity"].values()): each["enforced"].get("producer_byte_rate") for each in listed}
    assert enforced[None, "my-client"] == 2_000_000
    assert enforced["new",] == 1_000_000
    # every unit is resolved by itself: the shares above hold for user-two as well, its own 10 MB/s are more than that
    assert enforced["user-two", "my-client"] == 2_000_000
    assert "*producer_byte_rate:broker_bps=10000000" in drafted("--list", "--names=user=user-two")
    assert drafted("--describe", "--names=user=user-two,client-id=my-client", "--include-overrides") == (
        "consumer_byte_rate:broker_bps=200 {user=user-two, client-id=my-client}\n"
        "*consumer_byte_rate:broker_bps=100 {user=<default>, client-id=my-client}\n"
        "producer_byte_rate:broker_bps=10000000 {user=user-two, client-id=my-client}\n"
        "producer_byte_rate:shares=100 {user=<default>, client-id=my-client}\n"
    )
    # without shares everything is as it was
    drafted("--alter", "--names=user=new", "--delete=producer_byte_rate:shares")
    drafted("--alter", *who, "--delete=producer_byte_rate:shares", "--add=producer_byte_rate=500000")
    assert drafted("--list") == f"{ONE}\n{TWO}\n{DEFAULT}"


@pytest.mark.parametrize(
    ("names", "said"),
    [
        ("client-id=%ff", "--names client-id=%ff: what is written with % is no UTF-8; write a percent sign as %25"),
        ("user=<default>", "give --defaults user; if <default> is really a name, write user=%3Cdefault%3E"),
        ("client-id=" + "n" * 40_000, "the name has 40000 bytes, and Kafka's protocol takes 32767 at most; shorten it"),
    ],
    ids=["no UTF-8", "default", "long"],
)
def test_a_name_that_would_be_somebody_elses_is_refused(run, broker, names, said):
    asked = len(broker.requests)
    for words in (["--alter", "--add=producer_byte_rate=1"], ["--list"], ["--describe"]):
        assert said in run(*words, f"--names={names}", status=2)
    assert len(broker.requests) == asked, "nobody was asked"
    run("--alter", "--names=user=%3Cdefault%3E", "--add=producer_byte_rate=1")
    run("--alter", "--names=client-id=%25ff", "--add=producer_byte_rate=2")
    assert run("--list").startswith("{client-id=%25ff}\nproducer_byte_rate:broker_bps=2\n\n{user=%3Cdefault%3E}\n")


def test_a_cluster_wide_rate_is_divided_among_the_brokers_that_lead(run, broker):
    run("--alter", "--names=user=u", "--add=producer_byte_rate:bps=1000001")
    assert run("--list") == "{user=u}\nproducer_byte_rate:bps=1000001\nproducer_byte_rate:broker_bps=500000\n"
    run("--alter", "--names=user=u", "--add=producer_byte_rate:broker_bps=600000")
    assert run("--list") == (
        "{user=u}\nproducer_byte_rate:bps=1000001\nproducer_byte_rate:broker_bps=500000\n"
        "*producer_byte_rate:broker_bps=600000\n"
    )
    run("--alter", "--names=user=u", "--add=producer_byte_rate:broker_bps=400000")
    assert run("--list") == "{user=u}\nproducer_byte_rate:bps=1000001\nproducer_byte_rate:broker_bps=400000\n"
    run("--alter", "--names=user=u", "--delete=producer_byte_rate:bps")
    assert run("--list") == "{user=u}\nproducer_byte_rate:broker_bps=400000\n"
    run("--alter", "--names=user=u", "--delete=producer_byte_rate")
    assert run("--list") == ""


def test_source_values_in_a_file(run, tmp_path):
    store = f"--units-store={tmp_path / 'units.json'}"
    run(store, "--alter", "--names=user=u", "--add=consumer_byte_rate:bps=1000")
    assert "consumer_byte_rate:bps=1000\n" in run(store, "--list")
    # who does not know of the file sees what brokers enforce
    assert run("--list") == "{user=u}\nconsumer_byte_rate:broker_bps=500\n"
    err = run("--units-store=none", "--alter", "--names=user=u", "--add=consumer_byte_rate:bps=1", status=2)
    assert "give --units-store" in err
    (tmp_path / "units.json").write_text("{}")
    assert "this is no file of quota sources" in run(store, "--list", status=2)


def test_validate_only_alters_nothing(run):
    add = "--add=producer_byte_rate=1,consumer_byte_rate:bps=5"
    assert run("--alter", "--names=user=u", add, "--validate-only") == ""
    assert run("--list") == ""
    err = run("--alter", "--names=user=u", "--add=producer_byte_rate=-5", "--validate-only", status=1)
    assert "Quota producer_byte_rate must be greater than 0" in err


def test_what_brokers_refuse_is_not_kept_beside_them(run):
    bad = "--add=producer_byte_rate:bps=5,request_percentage=-1"
    assert "must be greater than 0" in run("--alter", "--names=user=u", bad, status=1)
    assert run("--list") == ""


def test_names_are_sanitized_and_given_so(run):
    run("--alter", "--names=user=CN%3Dx%2CO%3Dy", "--add=request_percentage=12.5")
    run("--alter", "--names=user=%3Cdefault%3E", "--add=request_percentage:percent=1")
    assert run("--list", "--names=user=%3Cdefault%3E") == "{user=%3Cdefault%3E}\nrequest_percentage:percent=1\n"
    assert run("--list") == (
        "{user=%3Cdefault%3E}\nrequest_percentage:percent=1\n\n{user=CN%3Dx%2CO%3Dy}\nrequest_percentage:percent=12.5\n"
    )
    assert json.loads(run("--list", "--output=json"))[1]["entity"] == {"user": "CN=x,O=y"}


def test_other_outputs(drafted):
    rows = yaml.safe_load(drafted("--describe", "--names=user=user-one,client-id=my-client", "--output=yaml"))
    assert rows[0] == {
        "quota": "consumer_byte_rate:broker_bps",
        "value": 100,
        "entity": {"user": None, "client-id": "my-client"},
        "overrides": [],
    }
    assert drafted("--list", "--output=table", "--names=user=user-one").splitlines() == [
        "ENTITY                                QUOTA                            VALUE  PER BROKER",
        "{user=user-one, client-id=my-client}  producer_byte_rate:broker_bps  2000000     2000000",
    ]
    described = drafted(
        "--describe", "--names=user=user-one,client-id=my-client", "--include-overrides", "--output=table"
    )
    assert described.splitlines()[2:] == [
        "producer_byte_rate:broker_bps  2000000  {user=user-one, client-id=my-client}   decides",
        "producer_byte_rate:broker_bps   500000  {user=<default>, client-id=my-client}  overridden",
    ]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--alter", "--names=user=u"], "--alter needs --add"),
        (["--alter", "--add=producer_byte_rate=1"], "no entity is named"),
        (["--alter", "--names=user=u", "--add=producer_byte_rate:mbps=1"], "its units are broker_bps, bps, shares"),
        (["--alter", "--names=user=u", "--add=producer_byte_rate=many"], "that is no number"),
        (["--alter", "--names=user=u", "--add=producer_byte_rate:bps=0"], "must be greater than 0"),
        (["--alter", "--names=user=u", "--add=a=1,a=2"], "stands in it twice"),
        (["--alter", "--names=user=u", "--add=a=1", "--delete=a"], "added and deleted"),
        (["--alter", "--names=user=u", "--add=producer_byte_rate"], "write name:unit=value"),
        (["--alter", "--names=user", "--add=a=1"], "write type=name"),
        (["--alter", "--names=user=a,user=b", "--add=a=1"], "user stands in it twice"),
        (["--alter", "--names=user=a", "--defaults=user", "--add=a=1"], "has a name already"),
        (["--list", "--names=user=a", "--prefix=user=b"], "named already"),
        (["--list", "--include-overrides"], "goes with --describe only"),
        (["--describe", "--names=user=u", "--capacity=controller_mutation_rate=1"], "goes with --alter only"),
        (["--alter", "--names=user=u", "--add=a=1", "--capacity=controller_mutation_rate=1"], "cannot be shared out"),
        (["--describe", "--defaults=user"], "a client has a name"),
        (["--list", "--command-config=/nonexistent"], "--command-config /nonexistent"),
    ],
)
def test_wrong_options(run, arguments, words):
    assert words in run(*arguments, status=2)


def test_no_cluster(capsys):
    assert quotas.main(["--list"]) == 2
    assert "--bootstrap-server is missing" in capsys.readouterr().err
    assert quotas.main(["--list", "--bootstrap-server", "127.0.0.1:1", "--timeout", "1"]) == 1
    assert "127.0.0.1:1" in capsys.readouterr().err


def test_a_type_that_the_broker_does_not_know(run):
    assert "Unhandled client quota entity type: group" in run("--alter", "--names=group=g", "--add=x=1", status=1)
    assert "no entity type group" in run("--list", "--names=group=g", status=1)
