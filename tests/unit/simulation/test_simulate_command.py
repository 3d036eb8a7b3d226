"""`kclient-quota simulate`: options in, text, JSON and a drawing out."""

import argparse
import json

import pytest

from kclient_quota.cli import simulate
from kclient_quota.cli.simulation_run import play
from kclient_quota.errors import ConfigError
from kclient_quota.simulation import Scenario, figures, parts


def run(*arguments):
    parser = argparse.ArgumentParser()
    simulate.add_arguments(parser)
    return simulate.run(parser.parse_args([*arguments, "--seconds", "40", "--warm-up", "10"]))


def test_text(capsys):
    assert run("--clients", "2", "--quota", "51200", "--arrivals", "20:1", "--departures", "30:2") == 0
    said = capsys.readouterr().out
    assert "3 producers on 1 brokers" in said
    for word in ("utilisation", "Jain", "p99", "settled, 0 s", "settled, 20 s", "settled, 30 s"):
        assert word in said


def test_json_is_the_same_for_the_same_seed_and_any_number_of_processes(capsys):
    def found(*arguments):
        run("--json", "--brokers", "2", "--clients", "4", "--quota", "51200", "--source", "learned", *arguments)
        return json.loads(capsys.readouterr().out)

    first = found("--seed", "7", "--jobs", "1")
    assert found("--seed", "7", "--jobs", "2") == first
    assert found("--seed", "8") != first
    assert 0.5 < first["utilisation"] < 1.5


def test_producers_and_consumers_are_simulated_beside_each_other(capsys):
    assert run("--clients", "1", "--plain", "1", "--consumers", "2", "--plain-consumers", "1", "--quota", "51200") == 0
    producers, consumers = capsys.readouterr().out.split("\n\n")
    assert "1 producers, 1 plain producers on 1 brokers" in producers
    assert "2 consumers, 1 plain consumers on 1 brokers" in consumers
    assert "their throttles" in producers
    assert "plain delivery" in producers
    assert "plain delivery" not in consumers
    assert "their throttles" in consumers
    run("--clients", "1", "--consumers", "1", "--batch-messages", "8", "--quota", "102400", "--json")
    found = json.loads(capsys.readouterr().out)
    assert sorted(found) == ["consumers", "producers"]
    assert found["consumers"]["utilisation"] > 0.9


def test_some_learn_what_the_others_know(capsys):
    run("--clients", "3", "--learning", "1", "--consumers", "2", "--quota", "51200")
    said = capsys.readouterr().out
    assert said.count("knowing clients") == said.count("learning clients") == 2
    run("--consumers", "3", "--learning", "1", "--quota", "51200", "--json")
    found = json.loads(capsys.readouterr().out)
    assert (found["known"]["clients"], found["learning"]["clients"], found["plain"]) == (2, 1, None)
    assert found["known"]["used"] + found["learning"]["used"] == pytest.approx(1)
    with pytest.raises(ConfigError, match="learning"):
        run("--clients", "1", "--learning", "2")


def test_only_plain_consumers_are_no_producers(capsys):
    run("--plain-consumers", "2", "--quota", "51200")
    assert "2 plain consumers on 1 brokers" in capsys.readouterr().out


def test_plot(tmp_path):
    pytest.importorskip("matplotlib")
    file = tmp_path / "fleet.svg"
    run("--clients", "2", "--quota", "51200", "--arrivals", "20:1", "--plot", str(file))
    assert '<svg style="max-width: 100%; height: auto" ' in file.read_text()  # phones see all of it
    with pytest.raises(ConfigError, match="--plot"):
        run("--plot", str(tmp_path / "missing" / "fleet.svg"))
    with pytest.raises(ConfigError, match="--plot"):
        run("--clients", "1", "--consumers", "1", "--plot", str(file))


def test_legends_hide_no_data_and_one_client_is_no_clients():
    pytest.importorskip("matplotlib")
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    from kclient_quota.cli.simulation_plot import picture

    scenario = Scenario(clients=0, plain=1, quota=51_200, seconds=60)
    outcomes = play(scenario, 1, 1)
    figure = picture(scenario, outcomes, figures(scenario, outcomes))
    FigureCanvasAgg(figure).draw()
    assert figure.get_suptitle().startswith("1 producer (1 plain librdkafka)")
    for axes in figure.axes:
        legend, title = axes.get_legend().get_window_extent(), axes._left_title.get_window_extent()
        assert not legend.overlaps(axes.bbox)
        assert not legend.overlaps(title)


def test_leaders_and_demands_reach_the_scenario(capsys):
    run("--brokers", "3", "--clients", "2", "--leaders", "0,1", "--leaders", "2", "--demand", "1000", "--json")
    found = json.loads(capsys.readouterr().out)
    assert found["utilisation"] < 0.01
    assert len(parts(Scenario(brokers=3, clients=2, leaders=((0, 1), (2,))))) == 2


@pytest.mark.parametrize("wrong", [["--leaders", "a"], ["--arrivals", "5"], ["--arrivals", "5:0"], ["--source", "x"]])
def test_wrong_options(wrong, capsys):
    with pytest.raises(SystemExit, match="2"):
        run(*wrong)
    assert wrong[0] in capsys.readouterr().err


def test_options_that_do_not_fit_each_other():
    with pytest.raises(ConfigError, match="depart"):
        run("--clients", "1", "--departures", "5:2")


def test_a_short_one_needs_no_warm_up_to_be_said(capsys):
    parser = argparse.ArgumentParser()
    simulate.add_arguments(parser)
    assert simulate.run(parser.parse_args(["--clients", "1", "--quota", "50KiB/s", "--seconds", "10"])) == 0
    assert "51,200 B/s" in capsys.readouterr().out
