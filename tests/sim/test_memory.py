"""What crosses the DRAM pins."""

from acf.sim.memory import OnChipMemory


def test_data_from_outside_is_read_once() -> None:
    memory = OnChipMemory(100)
    assert memory.touch("weight", 60, external=True) == 60
    assert memory.touch("weight", 60, external=True) == 0


def test_what_the_step_makes_is_born_on_chip() -> None:
    memory = OnChipMemory(100)
    assert memory.touch("activation", 60, external=False) == 0
    assert memory.touch("activation", 60, external=False) == 0


def test_an_evicted_tensor_is_written_and_read_again() -> None:
    memory = OnChipMemory(100)
    memory.touch("first", 60, external=False)
    assert memory.touch("second", 60, external=False) == 60  # first is written back
    assert memory.touch("first", 60, external=False) == 60 + 60  # first is read, second written back


def test_unchanged_data_is_not_written_back() -> None:
    memory = OnChipMemory(100)
    memory.touch("weight", 60, external=True)
    assert memory.touch("activation", 60, external=False) == 0


def test_the_least_recently_used_goes_first() -> None:
    memory = OnChipMemory(100)
    memory.touch("a", 40, external=True)
    memory.touch("b", 40, external=True)
    memory.touch("a", 40, external=True)
    memory.touch("c", 40, external=True)
    assert memory.touch("a", 40, external=True) == 0
    assert memory.touch("b", 40, external=True) == 40


def test_a_tensor_larger_than_the_memory_streams() -> None:
    memory = OnChipMemory(100)
    assert memory.touch("huge", 150, external=False) == 300  # written once, read once
    assert memory.touch("huge", 150, external=False) == 150
