"""Credits: a controller may send while it has one, and otherwise waits for the next that comes back."""

from acf.sim.fabric.components.credit import NEVER, Credits, credit_at, give_back


def next_credit(credits: Credits) -> int:
    return credit_at(credits, 0)


def test_all_credits_are_with_the_controller_at_first() -> None:
    assert next_credit(Credits.new(clusters=1, places=2)) == 0


def test_a_full_store_gives_a_credit_only_when_one_is_returned() -> None:
    credits = Credits.new(clusters=1, places=2)
    credits.taken[0] = 2
    assert next_credit(credits) == NEVER
    give_back(credits, 0, 17)
    assert next_credit(credits) == 17


def test_credits_are_used_in_the_order_in_which_they_come_back() -> None:
    credits = Credits.new(clusters=1, places=2)
    credits.taken[0] = 2
    give_back(credits, 0, 17)
    give_back(credits, 0, 23)
    credits.taken[0] += 1
    assert next_credit(credits) == 23
