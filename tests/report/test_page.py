"""The page opens offline, shows what was counted and lets no label become code."""

import ast
import json
import os
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

import acf.report
from acf.errors import AcfError
from acf.metrics import MaskSnapshot
from acf.report import report
from acf.units import binary_bytes

PLOTLY = (Path(acf.report.__file__).parent / "plotly-cartesian.min.js").read_text(encoding="utf-8")
HOSTILE = '</script><script>alert("x")</script><img src=x onerror=alert(1)><a href="https://evil.example">&amp;\'%{x}'
ALLOWED_IMPORTS = (
    "acf.columns",
    "acf.errors",
    "acf.files",
    "acf.units",
    "acf.metrics",
    "acf.sim.comparison",
    "acf.sim.result",
    "acf.report",
)


class Page(HTMLParser):
    """The page as a browser reads it: elements, table rows, scripts and visible text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.rows: list[list[str]] = []
        self.scripts: list[str] = []
        self.styles: list[str] = []
        self.words: list[str] = []
        self._inside: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        self._inside.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag):
        while self._inside and self._inside.pop() != tag:
            pass

    def handle_data(self, data):
        inside = self._inside[-1] if self._inside else ""
        if inside == "script":
            self.scripts[-1] += data
        elif inside == "style":
            self.styles.append(data)
        else:
            self.words.append(data)
        if inside in ("td", "th"):
            self.rows[-1][-1] += data

    def tags(self, name: str) -> list[dict[str, str | None]]:
        return [attributes for tag, attributes in self.elements if tag == name]

    @property
    def figures(self) -> list[dict]:
        contents = zip(self.tags("script"), self.scripts, strict=True)
        return [json.loads(text) for attributes, text in contents if attributes.get("type") == "application/json"]


def read(path: Path) -> Page:
    return Page(path.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def page(results, training, tmp_path_factory):
    return read(report(results, tmp_path_factory.mktemp("page") / "report.html", training=training, title="Study"))


def test_nothing_on_the_page_refers_to_a_network(page):
    reading = [
        value
        for _, attributes in page.elements
        for name, value in attributes.items()
        if name in ("src", "href", "srcset", "action", "data", "poster")
    ]
    assert all(value.startswith(("#", "data:")) for value in reading)
    own = [text for text in page.scripts if text != PLOTLY] + page.styles
    assert not any("http://" in text or "https://" in text or "url(" in text or "@import" in text for text in own)


def test_the_page_forbids_the_browser_any_connection(page):
    policy = next(meta["content"] for meta in page.tags("meta") if "http-equiv" in meta)
    assert "default-src 'none'" in policy
    assert "http" not in policy


def test_plotly_is_inside_the_page_once(page):
    assert page.scripts.count(PLOTLY) == 1


def test_every_plot_has_its_data_and_a_spoken_name(page):
    plots = [attributes for attributes in page.tags("div") if "data-plot" in attributes]
    assert len(plots) == len(page.figures) == 7 + 2 * 3 + 3
    assert all(plot["role"] == "img" and plot["aria-label"] for plot in plots)


def test_summary_rows_are_the_numbers_of_the_results(page, results, training):
    for result in results[1:]:
        row = next(row for row in page.rows if row[:2] == [result.workload, result.architecture])
        record = next(record for record in training if record.label == result.workload)
        speedup = result.speedup_over(results[0])
        assert row[3:6] == [
            f"{100 * record.test_accuracy:.1f} %",
            f"{100 * record.weight_sparsity:.1f} %",
            f"{result.cycles:,}",
        ]
        assert row[6] == f"{result.seconds * 1e6:.3g} µs"
        assert row[7] == f"{result.step_seconds * 1e6:.3g} µs"
        assert row[8] == f"{speedup:.2f} ×"  # noqa: RUF001
        assert row[9] == f"{speedup * results[0].peak_macs_per_s / result.peak_macs_per_s:.2f} ×"  # noqa: RUF001
        assert row[11:] == [
            f"{100 * result.utilization:.1f} %",
            f"{100 * result.step_utilization:.1f} %",
            f"{result.energy_j * 1e6:.3g} µJ",
            binary_bytes(result.dram_bytes),
        ]


def test_clock_and_node_stand_in_every_summary_row(page, results):
    machines = {row[1]: row[2] for row in page.rows if row[0] == "dense" and len(row) == 15}
    assert machines == {
        "tensordash": "500 MHz, 65 nm",
        "procrustes": "1 GHz, 45 nm",
        "mesh-8x8": "800 MHz, 28 nm",
    }


def test_every_operation_of_every_result_is_listed(page, results):
    operations = [row for row in page.rows if row[0] in {op.name for op in results[0].ops}]
    assert len(operations) == sum(len(result.ops) for result in results)
    op = results[0].ops[0]
    assert operations[0][:4] == [op.name, "forward", "–", f"{op.cycles:,}"]  # noqa: RUF001
    assert operations[0][8] == "memory\u00a025.0\u00a0%, sync\u00a025.0\u00a0%"
    assert len(page.tags("details")) == len(results)


def test_the_notes_of_every_architecture_are_on_the_page(page, results):
    text = "".join(page.words)
    assert all(note in text for result in results for note in result.notes)


def test_the_legend_says_what_utilisation_and_speedup_mean(page):
    text = " ".join("".join(page.words).split())
    assert "whose two operands are non-zero, divided by the MAC slots" in text
    assert "the first result of the same network, here tensordash on dense" in text


def test_both_colour_schemes_are_styled(page):
    assert "--ink: light-dark(" in page.styles[0]
    assert {"name": "color-scheme", "content": "light dark"} in page.tags("meta")


def test_every_table_can_be_filtered_and_saved(page):
    tables = [attributes["data-table"] for attributes in page.tags("div") if "data-table" in attributes]
    assert len(set(tables)) == len(tables) == len(page.tags("table"))
    assert len(page.tags("input")) == len(tables)


def test_cells_hold_the_numbers_themselves_for_sorting_and_csv(page, results):
    seconds = {float(cell["data-v"]) for cell in page.tags("td") if "data-v" in cell}
    assert all(float(f"{result.step_seconds:.6g}") in seconds for result in results)


def test_masks_of_a_run_become_pictures_with_words(training, tmp_path):
    before, after = [[True, False, True]], [[False, True, True]]
    masks = tuple(MaskSnapshot.of(step, "fc<1>", mask) for step, mask in ((0, before), (10, after)))
    page = read(report([], tmp_path / "masks.html", training=[replace(training[1], masks=masks)]))
    assert [picture["alt"] for picture in page.tags("img")] == [
        "fc<1> after step 0: 66.7 % of 1 x 3 blocks present, 0 of them absent in the picture before",
        "fc<1> after step 10: 66.7 % of 1 x 3 blocks present, 1 of them absent in the picture before",
    ]


def test_the_page_of_a_small_study_is_below_three_megabytes(results, training, tmp_path):
    assert report(results, tmp_path / "page.html", training=training).stat().st_size < 3e6


def test_fifty_runs_of_a_deep_network_stay_below_ten_megabytes(results, training, tmp_path):
    ops = tuple(replace(op, name=f"layer{i}.{op.name}", shape="x" * 40) for i in range(11) for op in results[0].ops)

    def size(runs):
        played = [replace(results[0], workload=f"step {i}", ops=ops) for i in range(runs)]
        records = [replace(training[1], label=f"run {i}", losses=(1.0,) * 5000) for i in range(runs)]
        return report(played, tmp_path / "page.html", training=records).stat().st_size

    of_two, of_five = size(2), size(5)
    assert of_two + 48 * (of_five - of_two) / 3 < 10e6


def test_a_label_cannot_become_markup_or_code(page, results, training, tmp_path):
    op = results[0].ops[0]
    hostile_op = replace(op, name=HOSTILE, phase=HOSTILE, lost_slots={HOSTILE: 1}, energy_j={HOSTILE: 1.0})
    hostile = replace(results[0], architecture=HOSTILE, workload=HOSTILE, ops=(hostile_op,), notes=(HOSTILE,))
    record = replace(training[0], label=HOSTILE)
    path = report([hostile, *results[1:]], tmp_path / "hostile.html", training=[record, *training[1:]], title=HOSTILE)
    attacked = read(path)
    assert len(attacked.tags("script")) == len(attacked.figures) + 2
    assert attacked.tags("img") == []
    assert all(link["href"].startswith("#") for link in attacked.tags("a"))
    assert not any(name.startswith("on") for _, attributes in attacked.elements for name in attributes)
    assert HOSTILE in "".join(attacked.words)


def test_a_hostile_label_reaches_plotly_as_plain_letters(results, tmp_path):
    hostile = replace(results[0], architecture=HOSTILE)
    figure = read(report([hostile], tmp_path / "hostile.html")).figures[0]
    assert "<" not in figure["data"][0]["y"][0]
    assert figure["data"][0]["y"][0].startswith("&lt;/script&gt;")


def test_a_page_of_training_runs_alone_has_no_simulation_sections(training, tmp_path):
    page = read(report([], tmp_path / "training.html", training=training))
    assert "summary" not in {section.get("id") for section in page.tags("section")}
    assert len(page.figures) == 3
    assert ["sparse 90 %", "94.0 %", "90.0 %", "200", "0.4016", "19", "12.5 s"] in page.rows
    measured = [replace(record, test_joules=(5.0, 9.0)) for record in training]
    page = read(report([], tmp_path / "measured.html", training=measured))
    assert ["sparse 90 %", "94.0 %", "90.0 %", "200", "0.4016", "19", "12.5 s", "9 J"] in page.rows


def test_a_page_of_results_alone_has_no_training_columns(results, tmp_path):
    page = read(report(results, tmp_path / "results.html"))
    assert "Test accuracy" not in "".join(page.words)
    assert len(page.figures) == 7 + 2 * 3


def test_one_result_makes_a_page_without_a_speedup_plot(results, tmp_path):
    page = read(report(results[:1], tmp_path / "one.html"))
    assert len(page.figures) == 6 + 2


def test_a_step_without_operations_still_makes_a_page(results, tmp_path):
    page = read(report([replace(results[0], ops=()), results[3]], tmp_path / "empty.html"))
    assert page.rows[1][6] == "–"  # noqa: RUF001


def test_several_runs_of_one_label_are_averaged_and_counted(results, training, tmp_path):
    runs = [replace(training[0], test_accuracy=accuracy) for accuracy in (0.9, 0.92)]
    page = read(report(results, tmp_path / "seeds.html", training=runs))
    assert page.rows[1][3] == "91.0 % (mean of 2)"
    assert page.rows[4][3] == "–"  # noqa: RUF001


def test_a_diverged_run_still_makes_valid_plot_data(training, tmp_path):
    diverged = replace(training[0], losses=(1.0, float("nan"), float("inf")))
    page = read(report([], tmp_path / "diverged.html", training=[diverged]))
    assert page.figures[0]["data"][0]["y"] == [1.0, None, None]


def test_the_same_input_gives_the_same_file(results, training, tmp_path):
    first = report(results, tmp_path / "a.html", training=training).read_bytes()
    assert report(results, tmp_path / "b.html", training=training).read_bytes() == first


def test_missing_folders_are_made_and_the_path_comes_back(results, tmp_path):
    path = report(results[:1], str(tmp_path / "new" / "folder" / "report.html"))
    assert path == tmp_path / "new" / "folder" / "report.html"
    assert path.is_file()


def test_an_interrupted_write_leaves_the_old_report_and_no_litter(results, tmp_path, monkeypatch):
    path = tmp_path / "report.html"
    path.write_text("old report")

    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", stop)
    with pytest.raises(KeyboardInterrupt):
        report(results[:1], path)
    assert path.read_text() == "old report"
    assert os.listdir(tmp_path) == ["report.html"]


def test_nothing_to_report_is_refused_in_one_line(tmp_path):
    with pytest.raises(AcfError, match=r"^0 results, 0 training records and 0 ablations make no report; pass at"):
        report([], tmp_path / "report.html")
    assert os.listdir(tmp_path) == []


def test_a_folder_is_refused_as_a_path_with_a_file_name_to_use(results, tmp_path):
    with pytest.raises(AcfError, match=r"is a folder and a report is one file; pass a file such as .*report.html$"):
        report(results, tmp_path)


def test_a_path_below_a_file_is_refused_by_its_name(results, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(AcfError, match=r"report.html cannot be written .*; pass a path in a folder"):
        report(results[:1], tmp_path / "file" / "report.html")


def test_a_label_with_a_broken_character_does_not_stop_the_report(results, tmp_path):
    path = report([replace(results[0], workload="run \udcff")], tmp_path / "report.html")
    assert "run ?" in path.read_text(encoding="utf-8")


def test_the_report_imports_neither_torch_nor_the_simulator():
    for source in Path(acf.report.__file__).parent.glob("*.py"):
        nodes = list(ast.walk(ast.parse(source.read_text(encoding="utf-8"))))
        modules = [node.module for node in nodes if isinstance(node, ast.ImportFrom)]
        modules += [name.name for node in nodes if isinstance(node, ast.Import) for name in node.names]
        own = [module for module in modules if module.split(".")[0] in ("acf", "torch")]
        assert all(module.startswith(ALLOWED_IMPORTS) for module in own), source.name
