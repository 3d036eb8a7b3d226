"""A group that goes over to another protocol while it reads: each member is replaced by one of the other protocol."""

from contextlib import ExitStack

from tests.integration.group_members import assigned, fill, until

PARTITIONS, ROUND = 4, 40


def roll(broker, open_old, open_new, seconds=60):
    """Two members of the old protocol become two of the new one, and these again two of the old.

    Every message is committed as soon as it comes. Nobody waits for that: a commit may stand behind a JoinGroup whose
    answer waits for the other member, and both are polled by the same thread.

    Args:
        broker: has topic `t` of four partitions.
        open_old: opens a consumer of one protocol, which tells what it is given of its commits.
        open_new: of the other.
        seconds: what each step may take.
    """
    received, refused, sent, numbers = [], set(), 0, {}

    def read(members):
        """A round of messages, and every partition somebody's."""
        nonlocal sent
        fill(broker, ROUND, start=sent)
        sent += ROUND
        until(lambda _: all_read(members), *members, seconds=seconds, on_message=take)

    def all_read(members):
        held = [partition for member in members for partition in assigned(member)]
        return len(set(received)) == sent and len(held) == len(set(held)) == PARTITIONS

    def take(member, message):
        received.append(int(message.value()))
        numbers[message.partition(), message.offset() + 1] = received[-1]
        member.commit(message=message)

    def on_commit(error, partitions):
        refused.update(numbers[each.partition, each.offset] for each in partitions if error or each.error)

    with ExitStack() as stack:
        members = [stack.enter_context(open_old(on_commit)) for _ in range(2)]
        read(members)
        for open_next in (open_new, open_new, open_old, open_old):
            members.append(stack.enter_context(open_next(on_commit)))
            read(members)
            members.pop(0).close()
        read(members)
    assert set(received) == set(range(sent)), "nothing is lost"
    assert {number for number in received if received.count(number) > 1} <= refused, "nothing committed comes again"
