"""Any record as tables: nothing is lost, units are written, and what is cut is said."""

from acf.report.plain import MOST_ROWS, MOST_TABLES, plain_section


def tables(data: object) -> dict[str, tuple[tuple[str, ...], ...]]:
    """The rows of every table by its title."""
    return {each.title: each.table.rows for each in plain_section("x", "", data).tables}


def headings(data: object) -> list[str]:
    return [column.title for column in plain_section("x", "", data).tables[0].table.columns]


def test_a_list_of_objects_is_a_table_with_units_by_the_names_of_its_keys() -> None:
    rows = [
        {"network": "a", "step_seconds": 0.002, "energy_j": 1.5, "dram_bytes": 2048, "speedup": 2.0, "cycles": 1000}
    ]
    assert tables(rows) == {"rows": (("a", "2 ms", "1.5 J", "2.0 KiB", "2.00 \N{MULTIPLICATION SIGN}", "1,000"),)}
    assert headings(rows) == ["network", "step seconds", "energy", "dram bytes", "speedup", "cycles"]


def test_a_rate_is_a_plain_number_and_not_a_time() -> None:
    assert tables([{"name": "a", "examples_per_s": 1500.0}]) == {"rows": (("a", "1500"),)}


def test_objects_in_cells_become_columns_and_lists_of_objects_become_tables() -> None:
    data = {"machine": "m", "runs": [{"name": "a", "zeros": {"weight": 0.5}, "curve": [{"step": 1}, {"step": 2}]}]}
    assert tables(data) == {
        "values": (("machine", "m"),),
        "runs": (("a", "0.5"),),
        "runs: curve": (("a", "1"), ("a", "2")),
    }


def test_objects_of_the_same_shape_are_rows_by_name() -> None:
    data = {"alexnet": {"date": "monday", "seeds": 2}, "resnet50": {"date": "friday", "seeds": 3}}
    assert tables(data) == {"rows": (("alexnet", "monday", "2"), ("resnet50", "friday", "3"))}


def test_absent_values_booleans_and_long_lists_are_readable() -> None:
    row = {"name": "a", "ok": True, "absent": None, "few": [1, 2.5], "many": list(range(20))}
    assert tables([row]) == {"rows": (("a", "yes", "\N{EN DASH}", "1, 2.5", "20 values, 0 to 19"),)}


def test_a_single_value_and_a_plain_list_are_tables_too() -> None:
    assert list(tables({"a": 1}).values()) == [(("a", "1"),)]
    assert list(tables([1, 2]).values()) == [(("1",), ("2",))]


def test_what_is_cut_is_said() -> None:
    (title,) = tables([{"a": place} for place in range(MOST_ROWS + 1)])
    assert title == f"rows, the first {MOST_ROWS} of {MOST_ROWS + 1} rows"
    many = {f"part {place}": [{"a": 1}] for place in range(MOST_TABLES + 2)}
    section = plain_section("x", "All.", many)
    assert len(section.tables) == MOST_TABLES
    assert section.text == "All. 2 more tables are not shown; the record has them."
