"""Workers of one run compile different modules first."""

from tests.suite.compiling import from_share


def test_each_worker_begins_with_its_own_share_and_comes_to_all() -> None:
    things = list(range(10))
    begun = [from_share(things, number, 4) for number in range(4)]
    assert [order[0] for order in begun] == [0, 2, 5, 7]
    assert all(sorted(order) == things for order in begun)


def test_a_worker_in_the_place_of_one_that_died_has_a_share_too() -> None:
    assert from_share([1, 2, 3], 6, 4) == [2, 3, 1]
