"""`kclient-quota top`: who is throttled, from a topic and from a page for Prometheus."""

import json
import threading
import time
from contextlib import asynccontextmanager
from types import SimpleNamespace

import pytest
from kclient_telemetry.metric import MetricKind, Point, PointKey, PushPoint
from kclient_telemetry.otlp import encode
from kclient_telemetry.receiver.endpoint import PrometheusEndpoint
from kclient_telemetry.receiver.queued import QueuedSink
from textual.widgets import DataTable, Static

from kclient_quota import Producer
from kclient_quota.admin.effective import EffectiveQuotas
from kclient_quota.broker import EmbeddedBroker
from kclient_quota.cli.main import main
from kclient_quota.cli.telemetry_sources import _samples, opened
from kclient_quota.cli.top import _print, _screen, _summary, _Trouble
from kclient_quota.cli.top_screen import TopScreen
from kclient_quota.clients.telemetry_topic import TopicWriter
from kclient_quota.clock import unix_ms
from kclient_quota.errors import ClusterError, ConfigError
from kclient_quota.operate.top import Sample, Top, details, summary, table
from kclient_quota.operate.topic_receiver import pushes_of_record
from kclient_quota.quota.entity import DEFAULT, ClientQuotaEntity
from tests.closed_port import closed_port
from tests.raw_answers import answering

NOW = 1_800_000_000_000
P, C = "org.apache.kafka.producer.", "org.apache.kafka.consumer."


def fill(top, client, at_ms=NOW, user="alice", **values):
    for metric, value in values.items():
        name, _, node = metric.partition("__")
        tags = {"node_id": node} if node else {}
        top.take(Sample(client, client, user, P + name.replace("_", "."), tags, value, at_ms, is_delta=True))


def test_rows_say_who_is_held_up_by_what_and_since_when():
    top = Top()
    for at in (0, 10_000):
        fill(top, "slow", NOW + at, produce_throttle_time_avg=150.0, produce_throttle_time_max=900.0)
        fill(top, "slow", NOW + at, request_throttle_time_avg=20.0)
        fill(top, "waiting", NOW + at, user="bob", quota_wait_time_total=2_500.0)
        fill(top, "fine", NOW + at, produce_throttle_time_avg=0.0, node_outgoing_byte_rate__1=500.0)
        fill(top, "fine", NOW + at, node_outgoing_byte_rate__2=700.0, outgoing_byte_rate=1_200.0)
    top.take(Sample("c", "c", "bob", C + "fetch.manager.records.lag.max", {}, 7.0, NOW))
    top.take(Sample("c", "c", "bob", "my.own.metric", {}, 7.0, NOW))
    top.take(Sample("c", "c", "bob", "\u2028", {}, float("nan"), NOW))
    quotas = EffectiveQuotas(
        [
            (ClientQuotaEntity.of(user="alice"), {"producer_byte_rate": 1_000.0}),
            (ClientQuotaEntity.of(user=DEFAULT), {"producer_byte_rate": 5.0, "consumer_byte_rate": 9.0}),
        ]
    )
    rows = {row.client: row for row in top.rows(NOW + 20_000, quotas=quotas)}
    assert list(rows) == ["slow", "waiting", "c", "fine"]
    assert (rows["slow"].throttle_avg_ms, rows["slow"].throttle_max_ms) == (150, 900)
    assert (rows["slow"].throttled_since_ms, rows["fine"].throttled_since_ms) == (NOW, None)
    assert rows["waiting"].wait_ratio == 0.25
    assert (rows["fine"].rate, rows["fine"].limit, rows["fine"].use) == (700, 1_000, 0.7)
    assert (rows["slow"].quota, rows["c"].quota, rows["c"].limit) == ("{user=alice}", "{user=<default>}", 9)
    assert rows["c"].lag == 7
    assert (rows["slow"].level, rows["c"].level) == ("user", "user*")
    fill(top, "fine", NOW + 10_000, quota_batch_fill_avg=0.8)
    assert rows["fine"].batch_fill == 0.8
    assert top.rows(NOW + 20_000, sort="fill")[0].client == "fine"
    assert top.rows(NOW + 20_000, sort="since")[0].client == "slow"
    assert next(row.client for row in top.rows(NOW, sort="rate")) == "fine"
    assert [row.client for row in top.rows(NOW, sort="client")] == ["c", "fine", "slow", "waiting"]
    assert [row.client for row in top.rows(NOW, wanted="bob")] == ["waiting", "c"]
    fill(top, "slow", NOW + 30_000, produce_throttle_time_avg=0.0, request_throttle_time_avg=0.0)
    assert {row.client: row for row in top.rows(NOW + 30_000)}["slow"].throttled_since_ms is None
    assert [row.client for row in top.rows(NOW + 311_000)] == ["slow"], "who is silent is forgotten"
    with pytest.raises(ConfigError, match="sort by one of"):
        top.rows(NOW, sort="x")


def test_who_is_silent_is_forgotten_in_time_though_the_clock_is_put_back():
    top = Top()
    fill(top, "gone", NOW + 36_000_000, produce_throttle_time_avg=150.0)
    assert [row.client for row in top.rows(NOW)] == ["gone"]
    assert [row.client for row in top.rows(NOW + 300_000)] == ["gone"]
    assert not top.rows(NOW + 311_000)


def test_a_screen_of_80_columns():
    top = Top()
    fill(top, "a-very-long-client-id-indeed" * 3, user="CN=someone,OU=somewhere", produce_throttle_time_avg=123_456.0)
    fill(top, "esc\x1b[2J", produce_throttle_time_max=99_999.0, outgoing_byte_rate=123_456_789.0)
    quotas = EffectiveQuotas([(ClientQuotaEntity.of(user=DEFAULT, client_id=DEFAULT), {"producer_byte_rate": 1e15})])
    rows = top.rows(NOW, quotas=quotas)
    text = table(rows, NOW + 7_300_000) + "\n" + details(rows[0], NOW + 7_300_000)
    assert all(len(line) <= 80 for line in text.splitlines()), text
    assert "\x1b" not in text


def test_names_in_wide_characters_and_accents_keep_to_their_columns():
    """A character of Chinese or Japanese and an emoji take two columns: a row of 26 more was broken in two."""
    top = Top()
    for name in ("\u6ce8\u6587\u51e6\u7406\u30b5\u30fc\u30d3\u30b9", "\U0001f600" * 300, "e\u0301" * 7, "o" * 300):
        fill(top, name, user=name, produce_throttle_time_avg=5.0)
    _, *lines = table(top.rows(NOW), NOW).splitlines()
    firsts = {line.partition(" p -        5ms")[0] for line in lines}
    assert {"ooooooooooo… oooooo…", "\u00e9" * 7 + "      " + "\u00e9" * 7} <= firsts
    assert {
        "\u6ce8\u6587\u51e6\u7406\u30b5…  \u6ce8\u6587\u51e6…",
        "\U0001f600" * 5 + "…  " + "\U0001f600" * 3 + "…",
    } <= firsts


def test_who_makes_up_clients_takes_no_room_of_others():
    top = Top(most_clients=30)
    for number in range(10):
        fill(top, f"good{number}", user=f"good{number}", produce_throttle_time_avg=5.0)
    for number in range(500):
        fill(top, f"bad{number}", user="bad", produce_throttle_time_avg=5.0)
    fill(top, "late", user="late", produce_throttle_time_avg=5.0)
    fill(top, "good1", user="good1", **{f"node_outgoing_byte_rate__{node}": 7.0 for node in range(2_000)})
    rows = top.rows(NOW)
    assert len(rows) == 30
    assert sum(row.user.startswith("good") for row in rows) == 10
    assert "late" in {row.client for row in rows}
    assert summary(rows, top.left_out).endswith("30 held up by a quota; clients are left out, there are too many")
    assert len(top._clients["good1", "producer"].rates) == 1_000


def test_what_is_no_number_and_what_comes_from_the_future_is_not_believed():
    top = Top()
    for value in (float("inf"), float("-inf"), float("nan")):
        fill(top, "odd", produce_throttle_time_avg=value)
    assert top.rows(NOW) == []
    point = Point(PointKey(P + "outgoing.byte.rate"), MetricKind.GAUGE, 1.5)
    value = encode([PushPoint(point, 1.5, 1, 2, delta=False)], (), 0).payload
    before = unix_ms()
    (sample,) = _samples(*pushes_of_record(value, before + 10**12))
    assert before <= sample.at_ms <= unix_ms()


@pytest.fixture
def busy():
    """A producer that waits for its quota, whose pushes are in a topic and on a page."""
    with EmbeddedBroker(topics={"telemetry": 1}) as archive:
        writer = TopicWriter({"bootstrap.servers": archive.bootstrap_servers}, "telemetry")
        endpoint = PrometheusEndpoint()
        with EmbeddedBroker(topics={"t": 1}, exporters=[QueuedSink(writer), endpoint]) as cluster:
            cluster.set_client_metrics("all", interval_ms=200)
            for each in (cluster, archive):
                each.set_quota(client_id="slow", producer_byte_rate=20_000)
            with Producer({"bootstrap.servers": cluster.bootstrap_servers, "client.id": "slow"}) as producer:
                while len(cluster.pushes) < 6:
                    producer.produce("t", b"x" * 10_000)
                    producer.poll(0)
                yield archive, f"http://127.0.0.1:{endpoint.port}/metrics"


def test_from_a_topic_and_from_a_page(busy, capsys):
    archive, url = busy
    for source in (["--from-topic", "telemetry"], ["--prometheus", url]):
        server = ["--bootstrap-server", archive.bootstrap_servers]
        assert main(["top", *source, *server, "--once", "--json", "--interval", "3"]) == 0
        (row,) = json.loads(capsys.readouterr().out)
        assert (row["client"], row["user"], row["kind"]) == ("slow", "ANONYMOUS", "producer")
        assert (row["limit"], row["quota"]) == (20_000, "{client-id=slow}")
    assert main(["top", "--prometheus", url, "--once", "--filter", "nobody"]) == 0
    assert "no client has pushed anything yet" in capsys.readouterr().out
    assert main(["top", "--prometheus", url, "--once"]) == 0
    assert capsys.readouterr().out.splitlines()[2].startswith("CLIENT")


def known(throttled=("b",)):
    top = Top()
    for client in ("a", "b", "c"):
        fill(top, client, outgoing_byte_rate=ord(client) * 100.0, produce_throttle_time_avg=0.0)
        if client in throttled:
            fill(top, client, produce_throttle_time_avg=70.0, produce_throttle_time_max=900.0)
    return top


@asynccontextmanager
async def shown(top, look=None):
    """The screen and who presses keys; by itself it looks at nothing more, so that it has nothing to do meanwhile."""
    ended = threading.Event()
    app = screen_of(top, look or (lambda _interval_s: ended.wait(60)))
    async with app.run_test(size=(80, 24)) as pilot:
        try:
            yield app, pilot
        finally:
            ended.set()


def screen_of(top, look):
    quotas = EffectiveQuotas([(ClientQuotaEntity.of(user="alice"), {"producer_byte_rate": 20_000.0})])
    return TopScreen(
        look,
        lambda sort, wanted: top.rows(NOW, sort=sort, wanted=wanted, quotas=quotas),
        lambda rows: summary(rows, top.left_out),
        interval_s=0.05,
        sort="throttle",
    )


def first_column(app):
    table = app.query_one(DataTable)
    return [str(table.get_row_at(number)[0]) for number in range(table.row_count)]


def text_of(app, name):
    return str(app.query_one(name, Static).content)


async def test_the_screen_sorts_filters_and_shows_one_client_in_full():
    async with shown(known()) as (app, pilot):
        await lists(pilot, app, "b", "a", "c")
        await soon(pilot, lambda: text_of(app, "#summary") == "3 clients, 1 held up by a quota; sorted by throttle")
        await tells(pilot, app, "producer b of alice\n{user=alice} allows 20kB/s per broker")
        await tells(pilot, app, "longest throttle 900ms")
        await pilot.press("down")
        await tells(pilot, app, "producer a of alice")
        await pilot.press("s", "s")
        await lists(pilot, app, "c", "b", "a")  # by rate
        await tells(pilot, app, "producer a of alice")  # the cursor stays with its client
        await pilot.press("slash", "b")
        await lists(pilot, app, "b")
        await soon(pilot, lambda: "those with 'b'" in text_of(app, "#summary"))
        await pilot.press("enter", "escape")
        await lists(pilot, app, "c", "b", "a")
        await pilot.click(DataTable, offset=(2, 0))
        await lists(pilot, app, "a", "b", "c")  # by client, whose head was clicked
        table = app.query_one(DataTable)
        assert sum(column.get_render_width(table) for column in table.columns.values()) <= 80
        await pilot.press("q")
    assert app.failure is None


async def test_names_are_shown_as_they_are():
    top = known()
    for name in ("[/]", "[red]x", "[b", "\\[x]"):
        fill(top, name, outgoing_byte_rate=1e9)
    async with shown(top) as (app, pilot):
        await pilot.press("s", "s")
        await soon(pilot, lambda: set(first_column(app)[:4]) == {"[/]", "[red]x", "[b", "\\[x]"})


async def test_a_screen_of_24_lines_with_300_clients():
    top = Top()
    for number in range(300):
        fill(top, f"client{number:03}", user=f"u{number % 7}", produce_throttle_time_avg=float(number))
    async with shown(top) as (app, pilot):
        await soon(pilot, lambda: text_of(app, "#summary").startswith("300 clients, 299 held up"))
        await pilot.press("ctrl+end")
        await tells(pilot, app, "client000")
        await pilot.press("slash", *"client299")
        await lists(pilot, app, "client299")
    assert app.failure is None


@pytest.fixture
def printed(monkeypatch, capsys):
    """The lines of 300 clients at a terminal of so many lines and columns without textual, which is cleared first."""

    def lines(height, width):
        top = Top()
        for number in range(300):
            fill(top, f"c{number}", produce_throttle_time_avg=5.0)
        monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
        monkeypatch.setenv("LINES", str(height))
        monkeypatch.setenv("COLUMNS", str(width))
        _print(top.rows(NOW), lambda rows: summary(rows, 0), SimpleNamespace(json=False, once=False, plain=False))
        return capsys.readouterr().out.removeprefix("\x1b[H\x1b[2J").splitlines()

    return lines


def test_a_terminal_without_textual_shows_as_many_as_fit(printed):
    lines = printed(24, 80)
    assert len(lines) < 24
    assert lines[-1] == "and 281 more"


def test_a_narrow_terminal_without_textual_breaks_no_line_in_two(printed):
    """Each row took two lines of 40 columns: the first rows, those held up most, were pushed out of sight."""
    lines = printed(10, 40)
    assert (len(lines), max(map(len, lines))) == (9, 40)
    assert lines[3] == "c0           alice   p -        5ms   0…"


def test_a_terminal_that_can_only_print_gets_tables(monkeypatch, capsys):
    """Emacs' shell, and consoles of CI: what moves a cursor is garbage there."""
    top = Top()
    fill(top, "c", produce_throttle_time_avg=5.0)
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv("TERM", "dumb")
    options = SimpleNamespace(json=False, once=False, plain=False)
    assert _screen(options) is None
    _print(top.rows(NOW), lambda rows: summary(rows, 0), options)
    assert "\x1b" not in capsys.readouterr().out


async def test_the_screen_shows_what_comes_meanwhile_and_ends_with_its_source():
    top, looks, may_end = known(()), [], threading.Event()

    def look(_interval_s):
        looks.append(1)
        if len(looks) == 1:
            fill(top, "d", produce_throttle_time_avg=5.0)
            return
        may_end.wait(60)
        raise ClusterError("the source is gone")

    async with shown(top, look) as (app, pilot):
        await soon(pilot, lambda: first_column(app)[0] == "d")
        may_end.set()
        await soon(pilot, lambda: app.failure is not None)
    assert str(app.failure) == "the source is gone"


async def soon(pilot, is_so):
    end = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < end, "not within a minute"
        await pilot.pause(0.05)


async def lists(pilot, app, *clients):
    await soon(pilot, lambda: first_column(app) == [*clients])


async def tells(pilot, app, words):
    await soon(pilot, lambda: words in text_of(app, "#details"))


def test_sources_that_are_none(capsys):
    with closed_port() as port:
        assert main(["top", "--prometheus", f"http://127.0.0.1:{port}/metrics", "--once"]) == 1
    assert "--prometheus http://127.0.0.1" in capsys.readouterr().err
    for answer in (b"SSH-2.0-OpenSSH\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\ncut"):
        with answering(answer) as port:
            assert main(["top", "--prometheus", f"http://127.0.0.1:{port}/metrics", "--once"]) == 1
        assert "--prometheus http://127.0.0.1" in capsys.readouterr().err
    assert main(["top", "--prometheus", "file:///etc/passwd", "--once"]) == 2
    assert "write http://HOST:PORT/metrics" in capsys.readouterr().err


def test_a_page_that_was_read_may_be_away_for_a_while():
    """A receiver that is restarted: `top` says that it cannot read, and goes on when it can."""
    top, trouble = Top(), _Trouble(SimpleNamespace(json=False))
    endpoint = PrometheusEndpoint()
    url = f"http://127.0.0.1:{endpoint.port}/metrics"
    options = SimpleNamespace(prometheus=url)
    look, _ = opened(options, top.take, lambda: False, whole=False, trouble=trouble.tell)
    look(0)
    assert _summary(top, trouble, []) == "0 clients, 0 held up by a quota"
    endpoint.close(10_000)
    look(0)
    said = _summary(top, trouble, [])
    assert said.startswith(f"--prometheus {url}: ")
    assert said.endswith("; trying again; 0 clients, 0 held up by a quota")
    endpoint = PrometheusEndpoint(port=endpoint.port)
    look(0)
    assert _summary(top, trouble, []) == "0 clients, 0 held up by a quota"
    endpoint.close(10_000)


def test_a_page_that_never_was_there_is_said_at_once():
    with closed_port() as port:
        options = SimpleNamespace(prometheus=f"http://127.0.0.1:{port}/metrics")
        look, _ = opened(options, Top().take, lambda: False, whole=False, trouble=pytest.fail)
        with pytest.raises(ClusterError, match="--prometheus http"):
            look(0)
