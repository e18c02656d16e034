"""Whole steps: what overlaps, what waits, and the bounds of both."""

from hypothesis import given
from hypothesis import strategies as st

from acf.sim.vector.schedule import PARTS, Job, StepSchedule

JOBS = st.builds(
    Job, st.integers(0, 999), st.integers(0, 999), st.booleans(), st.booleans(), st.booleans(), st.booleans()
)


def product(cycles: int, dram_cycles: int = 0, feeds: bool = True) -> Job:
    return Job(cycles, dram_cycles, is_product=True, feeds=feeds)


def vector(cycles: int, dram_cycles: int = 0, waits: bool = False) -> Job:
    return Job(cycles, dram_cycles, is_product=False, waits=waits)


def cycles_of(*jobs: Job, overlaps: bool = True) -> int:
    schedule = StepSchedule(overlaps)
    for job in jobs:
        schedule.add(job)
    return schedule.cycles


@given(st.lists(JOBS, max_size=20), st.booleans())
def test_a_step_takes_at_least_its_busiest_resource_and_at_most_everything_in_sequence(
    jobs: list[Job], overlaps: bool
) -> None:
    schedule = StepSchedule(overlaps)
    for job in jobs:
        schedule.add(job)
    assert schedule.least_cycles <= schedule.cycles <= schedule.most_cycles


@given(st.lists(JOBS, min_size=1, max_size=20), st.data())
def test_more_vector_work_never_makes_a_step_shorter(jobs: list[Job], data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(jobs) - 1))
    job = jobs[place]
    longer = Job(job.cycles + 50, job.dram_cycles, job.is_product, job.waits, job.feeds, job.follows_product)
    assert cycles_of(*jobs[:place], longer, *jobs[place + 1 :]) >= cycles_of(*jobs)


def test_an_activation_streams_behind_its_product_and_shows_only_its_last_part() -> None:
    assert cycles_of(product(1600), vector(320)) == 1600 + 320 // PARTS


def test_a_normalisation_waits_for_the_statistics_of_the_whole_output() -> None:
    statistics, scaling = vector(160), vector(320, waits=True)
    assert cycles_of(product(1600), statistics, scaling) == 1600 + 160 // PARTS + 320


def test_the_next_product_takes_normalised_parts_as_they_come() -> None:
    step = [product(1600), vector(160), vector(320, waits=True), product(1600)]
    assert cycles_of(*step) == 1600 + 160 // PARTS + 320 // PARTS + 1600


def test_a_product_cannot_end_before_the_vector_work_that_feeds_it() -> None:
    assert cycles_of(product(160), vector(3200), product(160)) == 160 // PARTS + 3200 + 160 // PARTS


def test_an_optimizer_update_holds_up_no_product() -> None:
    update = Job(800, 0, is_product=False, feeds=False, follows_product=True)
    assert cycles_of(product(1600, feeds=False), update, product(1600)) == 3200


def test_traffic_of_vector_work_delays_that_of_the_next_product() -> None:
    assert cycles_of(product(100), vector(10, dram_cycles=1000), product(100, dram_cycles=500)) >= 1500


def test_a_machine_without_overlap_runs_one_kernel_after_another() -> None:
    assert cycles_of(product(100), vector(50, dram_cycles=80), product(100), overlaps=False) == 280
