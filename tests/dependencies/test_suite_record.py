"""The record of what came of the suite in environments of other versions."""

from pathlib import Path

import pytest

from tests.dependencies.suite_record import outcomes, row

FIRST = """<testsuites><testsuite>
<testcase classname="tests.nn" name="test_a"><failure message="no"/></testcase>
<testcase classname="tests.nn" name="test_b"/>
<testcase classname="tests.nn" name="test_c"><skipped message="needs a GPU"/></testcase>
<testcase classname="tests.nn" name="test_d"><error message="no"/></testcase>
</testsuite></testsuites>"""
SECOND = '<testsuites><testsuite><testcase classname="tests.nn" name="test_a"/></testsuite></testsuites>'


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    found = [tmp_path / "first.xml", tmp_path / "second.xml"]
    for file, text in zip(found, (FIRST, SECOND), strict=True):
        file.write_text(text)
    return found


def test_the_later_of_two_outcomes_of_a_test_counts(files: list[Path]) -> None:
    assert outcomes(files)["tests.nn::test_a"] == ("passed", "")
    assert outcomes(files[::-1])["tests.nn::test_a"] == ("failed", "")


def test_errors_are_failures_and_the_reasons_of_skipped_tests_are_counted(files: list[Path]) -> None:
    found = row("oldest", files)
    assert (found["tests"], found["passed"], found["skipped"], found["failed"]) == (4, 2, 1, 1)
    assert found["failures"] == ["tests.nn::test_d"]
    assert found["reasons"] == {"needs a GPU": 1}
