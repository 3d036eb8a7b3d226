"""Clients and brokers for an hour: quotas change, clients come and go, brokers restart.

    make soak                                  # 60 minutes; benchmarks/results/soak.json
    python -m tests.soak --minutes 5

Fails when a message is lost, doubled or out of order, a call hangs, memory, descriptors or threads of either process
grow, or a metric says something else than the brokers do.
"""

import argparse
import json
import os
import sys
import time
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

from tests.soak.brokers import Brokers, size_of, versions
from tests.soak.clients import PARTITIONS, Comers, Ledger, Stayers, committed, end_offsets

SEED = 714
RATE = 60_000
"""Bytes per second that the producer that stays has to send; quotas are now above that, now below."""
SAMPLE_S, QUOTA_S, RESTART_S, COMER_S = 5, 20, 45, 5
LONGEST_S = 90.0
GROWTH, GROWTH_MB, GROWTH_COUNT = 0.1, 25.0, 3
"""What the last quarter may have more than the second: a tenth, at least so many MB, descriptors or threads."""
THROTTLE_MS = 15_000
"""No throttle of this hour is longer: its quotas and messages make 12.5 s of the worst."""


def growth(samples: list[dict[str, Any]]) -> dict[str, dict[str, list[float]]]:
    """Median of each quarter, by process and figure."""
    step = max(1, len(samples) // 4)
    quarters = [samples[number * step : (number + 1) * step] for number in range(4)]
    return {
        process: {
            figure: [median(sample[process][figure] for sample in quarter) for quarter in quarters]
            for figure in ("memory_mb", "descriptors", "threads")
        }
        for process in ("clients", "brokers")
    }


def is_flat(figure: str, quarters: list[float]) -> bool:
    """Whether the last quarter is as the second."""
    least = GROWTH_MB if figure == "memory_mb" else GROWTH_COUNT
    return quarters[3] - quarters[1] <= max(least, GROWTH * quarters[1])


def run(minutes: float) -> dict[str, Any]:
    """All of it; what was seen."""
    random, ledger, brokers = Random(SEED), Ledger(), Brokers()
    brokers.ask("subscription", interval_ms=10_000)
    for name, partitions in (("stays", PARTITIONS), ("comes", PARTITIONS), ("transacts", 1)):
        brokers.ask("topic", name=name, partitions=partitions)
    brokers.ask("quota", client_id="stays", producer_byte_rate=20_000)
    for number in range(8):
        brokers.ask("quota", client_id=f"comes-{number}", producer_byte_rate=10_000)
    stayers = Stayers(brokers.servers, ledger, RATE)
    comers = Comers(brokers.servers, ledger, stayers.shared, COMER_S, random)
    for thread in (*stayers.threads, comers.thread):
        thread.start()
    begin = time.monotonic()
    samples: list[dict[str, Any]] = []
    quotas = restarts = 0
    while (now := time.monotonic() - begin) < minutes * 60:
        sizes = {"clients": size_of(os.getpid()), "brokers": size_of(brokers.process.pid)}
        samples.append({"at_s": round(now), **sizes})
        if now > quotas * QUOTA_S:
            quotas += 1
            brokers.ask("quota", client_id="stays", producer_byte_rate=random.randrange(8_000, 40_000))
            brokers.ask("quota", client_id="reads", consumer_byte_rate=random.randrange(40_000, 200_000))
            brokers.ask("quota", client_id="shares", consumer_byte_rate=random.randrange(60_000, 200_000))
            brokers.ask("quota", client_id=f"comes-{quotas % 8}", producer_byte_rate=random.randrange(5_000, 50_000))
        if now > (restarts + 1) * RESTART_S:
            restarts += 1
            broker = 1 + restarts % 3
            if restarts % 2:
                brokers.ask("restart", broker=broker)
            else:
                brokers.ask("stop", broker=broker)
                time.sleep(3)
                brokers.ask("start", broker=broker)
        brokers.ask("count")
        time.sleep(SAMPLE_S)
    comers.stops.set()
    comers.thread.join(200)
    stayers.stops.set()
    stayers.threads[0].join(120)
    caught_up(stayers, ledger)
    stayers.stops_reading.set()
    for thread in stayers.threads:
        thread.join(60)
        if thread.is_alive():
            ledger.problems.append(f"{thread.name} is stuck")
    found = {
        "minutes": minutes,
        "quota_changes": quotas,
        "broker_restarts": restarts,
        "end_offsets": {name: end_offsets(brokers.servers, name, PARTITIONS) for name in ("stays", "comes")},
        "committed_read": committed(brokers.servers),
        "counts": dict(ledger.counts),
        "longest_s": {name: round(value, 1) for name, value in ledger.longest_s.items()},
        "read": vars_of(stayers.read) | {"wrong_numbers": stayers.wrong_numbers},
        "shared": vars_of(stayers.shared),
        "problems": ledger.problems,
    }
    counted = brokers.ask("count")
    brokers.close()
    pairs = {"clients' metrics()": ledger.throttled, "their pushes": counted["pushed"], "brokers": counted["throttles"]}
    found["produce_throttles"] = {
        teller: {name: list(sums) for name, sums in sorted(by_id.items())} for teller, by_id in pairs.items()
    }
    found["pushes"] = counted["pushes"]
    found["quarters"] = growth(samples)
    found["samples"] = samples[:: max(1, len(samples) // 120)]
    return found


def vars_of(order: Any) -> dict[str, int]:
    """What was read."""
    return {"read": order.read, "repeated": order.repeated, "missing": order.missing}


def caught_up(stayers: Stayers, ledger: Ledger) -> None:
    """Return when both readers have everything, or a minute is over."""
    wanted = ledger.counts["stays"]
    deadline = time.monotonic() + 60
    while min(stayers.read.read, stayers.shared.read) < wanted and time.monotonic() < deadline:
        time.sleep(0.2)


def agrees(told: list[int], given: list[int], restarts: int) -> bool:
    """Whether throttles, by number and ms, are those that brokers gave, but for answers that restarts have cut off."""
    cut_off, cut_off_ms = (theirs - ours for ours, theirs in zip(told, given, strict=True))
    return 0 <= cut_off <= restarts and 0 <= cut_off_ms <= cut_off * THROTTLE_MS


def verdict(found: dict[str, Any]) -> dict[str, bool]:
    """What had to be, and whether it was."""
    counts, ends = found["counts"], found["end_offsets"]
    produced = counts["stays"] + counts["comes"]
    sums = {
        teller: [sum(one[index] for name, one in by_id.items() if name != "") for index in (0, 1)]
        for teller, by_id in found["produce_throttles"].items()
    }
    agree = {
        f"{teller} agree with the brokers": agrees(told, sums["brokers"], found["broker_restarts"])
        for teller, told in sums.items()
        if teller != "brokers"
    }
    return {
        "nothing failed or was stuck": not counts.get("failed") and not counts.get("stuck") and not found["problems"],
        "everything was reported, once": counts["delivered"] == produced,
        "the logs have everything, once": ends["stays"] + ends["comes"] == produced,
        "it was read once, in order": found["read"]
        == {"read": counts["stays"], "repeated": 0, "missing": 0, "wrong_numbers": 0},
        "the group missed nothing": (found["shared"]["read"], found["shared"]["missing"]) == (counts["stays"], 0),
        "what was committed is read": found["committed_read"] == counts.get("committed", 0),
        "no call hung": all(value < LONGEST_S for value in found["longest_s"].values()),
        **agree,
        **{
            f"{figure} of the {process} are flat": is_flat(figure, quarters)
            for process, figures in found["quarters"].items()
            for figure, quarters in figures.items()
        },
    }


def main() -> int:
    """Run, print, write."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--json", type=Path, help="where the result goes, such as benchmarks/results/soak.json")
    chosen = parser.parse_args()
    found = run(chosen.minutes)
    verdicts = verdict(found)
    if chosen.json is not None:
        chosen.json.write_text(json.dumps({**versions(), "verdict": verdicts, **found}, indent=1) + "\n")
    for what, held in verdicts.items():
        print(f"{'yes' if held else 'NO ':4} {what}")
    for process, figures in found["quarters"].items():
        for figure, quarters in figures.items():
            print(f"{process} {figure}: {', '.join(f'{value:.0f}' for value in quarters)} by quarters")
    print(json.dumps({key: found[key] for key in ("counts", "longest_s", "read", "shared", "problems")}))
    return 0 if all(verdicts.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
