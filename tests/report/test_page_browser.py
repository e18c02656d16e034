"""The page in a real browser, at the widths of a phone, a laptop and a wall screen. Needs Playwright and Chromium."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from acf.metrics import MaskSnapshot
from acf.report import report

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
WIDTHS = (400, 1280, 2560)
if CHROMIUM is None:
    pytest.skip("no Chromium on the path: apt install chromium", allow_module_level=True)
playwright = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed: pip install playwright")


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as started:
        opened = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def path(results, training, tmp_path_factory: pytest.TempPathFactory) -> Path:
    masks = tuple(MaskSnapshot.of(step, "fc1", [[step == 0, True]]) for step in (0, 10))
    measured = [replace(record, test_seconds=(1.0, 2.0), test_joules=(5.0, 9.0), masks=masks) for record in training]
    return report(results, tmp_path_factory.mktemp("page") / "report.html", training=measured, title="Study")


@pytest.fixture
def open_page(browser, path):
    """Open the page with a given width; what the console or the network said is collected and must stay empty."""
    complaints: list[str] = []
    pages = []

    def opened(width: int, **options):
        page = browser.new_page(viewport={"width": width, "height": 900}, **options)
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: complaints.append(request.url) if request.url.startswith("http") else None)
        page.goto(path.as_uri())
        for figure in page.locator("[data-plot]").all():  # drawn when they come near
            figure.scroll_into_view_if_needed()
        page.wait_for_selector("[data-plot]:not([data-drawn])", state="detached")
        pages.append(page)
        return page

    yield opened
    for page in pages:
        page.close()
    assert complaints == []


@pytest.mark.parametrize("width", WIDTHS)
def test_every_figure_is_drawn_and_nothing_is_wider_than_the_page(open_page, width):
    page = open_page(width)
    assert page.locator("[data-plot]").count() == 18
    assert page.locator("[data-plot] .main-svg").count() >= 18
    assert page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("width", WIDTHS)
def test_legends_do_not_overlap_what_they_explain(open_page, width):
    overlaps = """figures => figures.filter(figure => {
        const legend = figure.querySelector(".legend");
        const labels = [...figure.querySelectorAll(".xtick text, .xtitle")];
        if (!legend || !labels.length) return false;
        const top = legend.getBoundingClientRect().top;
        return labels.some(label => label.getBoundingClientRect().bottom > top + 1);
    }).map(figure => figure.getAttribute("aria-label"))"""
    assert open_page(width).locator("[data-plot]").evaluate_all(overlaps) == []


def test_a_click_on_a_heading_sorts_and_a_second_one_turns_the_order(open_page):
    page = open_page(1280)
    cells = page.locator("#summary tbody tr td:nth-child(6)")
    page.locator("#summary th[data-key=cycles] button").click()
    ascending = [int(text.replace(",", "")) for text in cells.all_inner_texts()]
    page.locator("#summary th[data-key=cycles] button").press("Enter")
    descending = [int(text.replace(",", "")) for text in cells.all_inner_texts()]
    assert ascending == sorted(ascending)
    assert descending == sorted(ascending, reverse=True)
    assert page.locator("#summary th[data-key=cycles]").get_attribute("aria-sort") == "descending"


def test_the_filter_keeps_matching_rows_and_csv_holds_what_is_shown(open_page):
    page = open_page(1280)
    page.locator("#summary input").fill("procrustes")
    assert page.locator("#summary tbody tr:visible").count() == 2
    assert page.locator("#summary output").inner_text() == "2 of 6 rows"
    with page.expect_download() as saved:
        page.locator("#summary [data-csv]").click()
    lines = Path(saved.value.path()).read_text().splitlines()
    assert lines[0].startswith("workload,architecture,machine,test_accuracy")
    assert len(lines) == 3


def test_a_click_on_a_legend_hides_its_series(open_page):
    page = open_page(1280)
    slots = page.locator("[data-plot]").nth(2)
    before = slots.locator(".bars .point").count()
    slots.locator(".legendtoggle").first.click()
    page.wait_for_timeout(600)  # plotly waits for a second click, which would show one series alone
    assert slots.locator(".bars .point").count() < before


def test_the_button_turns_light_into_dark(open_page):
    page = open_page(1280, color_scheme="light")
    background = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(background)
    page.locator("#scheme").click()
    assert page.evaluate(background) != light
    axis = page.locator("[data-plot] .xtick text").first.evaluate("text => getComputedStyle(text).fill")
    assert axis == page.evaluate("pageColour('--quiet')")


def test_operations_open_with_the_keyboard(open_page):
    page = open_page(400)
    summary = page.locator("#operations summary").first
    summary.focus()
    summary.press("Enter")
    assert page.locator("#operations table").first.is_visible()


def test_printing_shows_every_figure_within_the_paper(open_page):
    page = open_page(1280)
    assert len(page.pdf(format="A4")) > 50_000


def test_no_table_is_wider_than_the_paper(open_page):
    page = open_page(720)
    page.emulate_media(media="print")
    page.evaluate("for (const each of document.querySelectorAll('details')) each.open = true")
    wide = """() => [...document.querySelectorAll("table")].filter(
        table => table.getBoundingClientRect().right > innerWidth).length"""
    assert page.evaluate(wide) == 0


def test_fifty_runs_open_in_two_seconds_and_ten_megabytes(browser, results, training, tmp_path):
    runs = [replace(each, workload=f"{each.workload} run {run}") for run in range(25) for each in results[::3]]
    records = [replace(each, label=f"{each.label} run {run}") for run in range(25) for each in training]
    path = report(runs, tmp_path / "fifty.html", training=records)
    assert len(runs) == len(records) == 50
    assert path.stat().st_size < 10_000_000
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})  # processor time: other work does not count
    page.goto(path.as_uri())
    metrics = {each["name"]: each["value"] for each in session.send("Performance.getMetrics")["metrics"]}
    assert 0 < metrics["TaskDuration"] < 2
    page.close()
