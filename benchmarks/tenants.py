"""What tenants cost: processor time a message takes to pass the send queue, with none, one and ten thousand of them.

`python -m benchmarks.tenants` offers small messages of every tenant in turn to a queue that is granted a quota of
1 MiB/s, in virtual time, and prints microseconds a message: offering, waiting for a turn, leaving. The tenant itself
comes from the application's function, whose time is not counted.
"""

import argparse
import random
import time
from collections.abc import Sequence
from typing import Final

from kclient_quota.pacing.pacer import Pacer
from kclient_quota.pacing.sending.batch_cost import BatchCost
from kclient_quota.pacing.sending.send_pace import SendPace
from kclient_quota.pacing.sending.send_queue import Grant, SendQueue
from kclient_quota.pacing.sending.turns import Waiting

QUOTA: Final = 1_048_576.0
RAW_BYTES: Final = 100
PARTITIONS: Final = 12
STEP_MS: Final = 5
TENANTS: Final = (0, 1, 10_000)


def cost_us(tenants: int, messages: int, seed: int = 1) -> float:
    """Microseconds of processor time a message, of so many tenants who all have more than they may send."""
    pace = SendPace(Pacer(QUOTA), BatchCost(), QUOTA)
    queue = SendQueue(pace)
    chance = random.Random(seed)
    partitions = [chance.randrange(PARTITIONS) for _ in range(1_000)]
    names = [f"tenant-{number}" for number in range(tenants)] or [None]
    now_ms, offered, left, used_s = 0, 0, 0, 0.0
    while left < messages:
        due = [
            Waiting("orders", partitions[number % 1_000], RAW_BYTES, now_ms, tenant=names[number % len(names)])
            for number in range(offered, offered + 2 * int(QUOTA / RAW_BYTES * STEP_MS / 1000))
        ]
        began_s = time.process_time()
        for message in due:
            if not queue.offer(message).accepted:
                break
            offered += 1
        while isinstance(grant := queue.next_grant(now_ms), Grant):
            left += len(grant.messages)
            pace.on_delivered(grant.raw_bytes, now_ms)
        used_s += time.process_time() - began_s
        now_ms += STEP_MS
    return used_s / left * 1e6


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3, help="the least of so many counts (default: %(default)s)")
    options = parser.parse_args(arguments)
    found = {tenants: min(cost_us(tenants, options.messages) for _ in range(options.rounds)) for tenants in TENANTS}
    for tenants, each_us in found.items():
        print(f"{tenants:>6} tenants {each_us:6.2f} us a message, {each_us - found[1]:+.2f} beside one")


if __name__ == "__main__":
    main()
