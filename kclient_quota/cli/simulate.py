"""`kclient-quota simulate`: many producers or consumers under one quota, in virtual time."""

import argparse
import math
from pathlib import Path

from kclient_quota.cli.quantities import count, rate, size
from kclient_quota.cli.running import stops_are_ctrl_c


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `kclient-quota simulate`."""
    parser.add_argument("--brokers", type=int, default=1, metavar="B", help="brokers (default: %(default)s)")
    _add_client_arguments(parser)
    parser.add_argument(
        "--quota",
        type=rate,
        default=1_048_576,
        metavar="T",
        help="on each broker, such as 1048576 or 1MiB/s, for all producers together, and as many bytes again "
        "for all consumers (default: 1 MiB)",
    )
    parser.add_argument("--message-bytes", type=size, default=1_000, metavar="BYTES", help="(default: %(default)s)")
    parser.add_argument(
        "--batch-messages",
        type=int,
        default=4,
        metavar="N",
        help="messages in each batch of the log that consumers read (default: %(default)s)",
    )
    parser.add_argument("--seconds", type=count, default=120, help="simulated time (default: %(default)s)")
    parser.add_argument(
        "--warm-up", type=int, metavar="SECONDS", help="left out (default: 30, but half of --seconds at most)"
    )
    parser.add_argument("--seed", type=int, default=1, help="the same seed gives the same figures (default: 1)")
    parser.add_argument(
        "--source",
        choices=("config", "learned"),
        default="config",
        help="whether clients know the quota, by hand or from the cluster, or learn it (default: %(default)s)",
    )
    parser.add_argument(
        "--learning",
        type=int,
        default=0,
        metavar="N",
        help="so many of the clients of the start learn the quota though all others know it; where producers and "
        "consumers are simulated, so many of each (default: 0)",
    )
    parser.add_argument(
        "--demand",
        type=_demand,
        action="append",
        metavar="RATE",
        help="bytes per second that each client has to send, or that come for it; again for more, which clients have "
        "in turn (default: inf, more than they may)",
    )
    parser.add_argument(
        "--leaders",
        type=_leaders,
        action="append",
        default=[],
        metavar="BROKER,...",
        help="leaders of a topic's partitions, as 0,1,2; again for more topics, to which clients go in turn "
        "(default: every client has one partition, clients go round the brokers)",
    )
    parser.add_argument(
        "--keyed", action="store_true", help="messages go round the partitions and wait for their leader"
    )
    parser.add_argument(
        "--arrivals",
        type=_change,
        action="append",
        default=[],
        metavar="SECOND:CLIENTS",
        help="more clients come, none of them plain; where producers and consumers are simulated, so many of each",
    )
    parser.add_argument(
        "--departures", type=_change, action="append", default=[], metavar="SECOND:CLIENTS", help="the oldest leave"
    )
    parser.add_argument("--round-trip-ms", type=_not_below_0, default=2, help="(default: %(default)s)")
    parser.add_argument(
        "--jitter-ms", type=_not_below_0, default=1, help="added to each way at most (default: %(default)s)"
    )
    parser.add_argument("--jobs", type=count, help="processes (default: one for each processor where it is worth it)")
    parser.add_argument("--plot", type=Path, metavar="FILE.svg", help="draw it (any format that matplotlib writes)")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")


def _add_client_arguments(parser: argparse.ArgumentParser) -> None:
    clients = parser.add_argument_group(
        "who", "Producers share one quota, consumers another; without any of these options: 8 producers."
    )
    clients.add_argument("--clients", type=int, metavar="N", help="producers of kclient-quota's")
    clients.add_argument(
        "--plain",
        type=int,
        default=0,
        metavar="N",
        help="plain producers beside them: librdkafka's, which send requests of up to 1 MB as fast as they are let and "
        "again when one has had no answer for 60 s",
    )
    clients.add_argument("--consumers", type=int, default=0, metavar="N", help="consumers of kclient-quota's")
    clients.add_argument(
        "--plain-consumers",
        type=int,
        default=0,
        metavar="N",
        help="plain consumers beside them: they fetch up to 1 MB from each broker, again and again",
    )


@stops_are_ctrl_c()
def run(options: argparse.Namespace) -> int:
    """Simulate, print, draw; what that takes is loaded now, and not for `--help`."""
    from kclient_quota.cli.simulation_run import run as simulate  # noqa: PLC0415

    return simulate(options)


def _demand(text: str) -> float:
    return math.inf if text == "inf" else rate(text)


def _not_below_0(text: str) -> int:
    return 0 if text == "0" else count(text)


def _leaders(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(broker) for broker in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"brokers separated by commas, as 0,1,2, not {text!r}") from None


def _change(text: str) -> tuple[int, int]:
    try:
        second, clients = (int(number) for number in text.split(":"))
    except ValueError:
        raise argparse.ArgumentTypeError(f"SECOND:CLIENTS, as 60:8, not {text!r}") from None
    if clients < 1:
        raise argparse.ArgumentTypeError(f"at least 1 client, not {clients}")
    return second, clients
