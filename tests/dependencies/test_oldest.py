"""The constraints that `make test-oldest` installs with."""

import re
import tomllib

import pytest

from tests.dependencies.oldest import PYPROJECT, constraint, constraints

PROJECT = tomllib.loads(PYPROJECT.read_text())["project"]


def test_an_extra_brings_the_bounds_of_the_extras_it_names() -> None:
    named = {line.partition("==")[0] for line in constraints(["adapters"])} - {
        line.partition("==")[0] for line in constraints([])
    }
    assert named == {"accelerate", "lightning", "tensorboard", "transformers"}


@pytest.mark.parametrize("extra", [None, *PROJECT["optional-dependencies"]])
def test_every_requirement_of_the_metadata_states_a_lower_bound(extra: str | None) -> None:
    lines = constraints([extra] if extra else [])
    assert lines
    assert all(re.fullmatch(r"[\w.-]+==[\d.*]+(;.+)?", line) for line in lines)


def test_a_requirement_without_a_lower_bound_is_refused() -> None:
    with pytest.raises(ValueError, match="'numpy<3' states no lower bound"):
        constraint("numpy<3")
