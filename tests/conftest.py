"""What every test runs under: one thread, a fixed seed, and a short deterministic Hypothesis profile."""

import hypothesis
import pytest
import torch

hypothesis.settings.register_profile("acf", deadline=None, max_examples=25, derandomize=True, database=None)
hypothesis.settings.load_profile("acf")

torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _fixed_seed() -> None:
    torch.manual_seed(0)
