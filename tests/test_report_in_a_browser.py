"""The report of a compiled function in headless Chromium: it opens, and what can be clicked does what it says."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tracejit as T
from tracejit import nn

webdriver = pytest.importorskip("selenium.webdriver")
BROWSER = next((found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None)
DRIVER = shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(BROWSER is None or DRIVER is None, reason="there is no Chromium with its driver")

HARMFUL = "</script><script>window.harmed = 1</script><img src=x onerror='window.harmed = 1'>"
seen = {HARMFUL: 2, "calls": 0}


def helper(h: T.Tensor) -> T.Tensor:
    return h.tanh() * 2


def make_report(path: Path) -> tuple[Any, int]:
    """The report of a function with several paths, effects and an eager line.  Returns the function and its first line."""
    model = nn.Sequential(nn.Linear(12, 8), nn.ReLU(), nn.Linear(8, 3))

    def loss(x: T.Tensor, y: T.Tensor, power: int = 2, name: str = HARMFUL) -> T.Tensor:
        """</script><script>window.harmed = 1</script>"""
        h = helper(model(x)) * seen[name]
        seen["calls"] += 1
        if x.sum() > 0:
            h = h * 3
        if power == 5:
            sys.getsizeof(print)
        return nn.functional.cross_entropy(h, y)

    compiled = T.compile(loss)
    x, y = T.ones(4, 12), T.ones(4, dtype=T.int64)
    for k in range(12):
        compiled(x if k % 2 else -x, y).backward()
    compiled(x[:3], y[:3])
    compiled(x, y, 5)
    compiled.report(path)
    return compiled, loss.__code__.co_firstlineno


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int]:
    """(the file, first line of the function)."""
    path = tmp_path_factory.mktemp("report") / "report.html"
    return path, make_report(path)[1]


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    options = webdriver.ChromeOptions()
    options.binary_location = str(BROWSER)
    for name in (
        "headless=new", "no-sandbox", "disable-gpu", "disable-background-networking", "disable-component-update", "disable-sync",
        "disable-dev-shm-usage", "window-size=1250,900", f"user-data-dir={tmp_path_factory.mktemp('profile')}",
    ):  # fmt: skip
        options.add_argument(f"--{name}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    yield driver
    driver.quit()


@pytest.fixture
def page(browser: Any, report: tuple[Path, int]) -> Any:
    """The browser with the report opened anew."""
    browser.get("about:blank")
    browser.get(report[0].as_uri())
    return browser


def by(page: Any, css: str) -> Any:
    return page.find_element("css selector", css)


def test_the_report_opens_without_an_error_and_asks_for_no_other_file(page: Any) -> None:
    assert "what was compiled" in page.title
    assert [entry for entry in page.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")] == []
    assert page.execute_script("return performance.getEntriesByType('resource').length") == 0
    assert page.execute_script("return window.harmed") is None
    assert HARMFUL.partition("<img")[0] in by(page, "body").get_attribute("textContent")


def test_the_first_words_say_what_happened_and_what_to_do(page: Any) -> None:
    assert "runs compiled" in by(page, "#opening").text and by(page, ".todo").text.startswith("What to do:")
    assert by(page, "#opening").location["y"] < 120


def test_all_parts_can_be_opened_and_closed_at_once(page: Any) -> None:
    closed = "return [...document.querySelectorAll('details')].filter(part => !part.open).length"
    some = page.execute_script(closed)
    button = by(page, "#all")
    button.click()
    assert some > 0 and page.execute_script(closed) == 0 and button.text == "Close all"
    button.click()
    every = page.execute_script("return document.querySelectorAll('details').length")
    assert page.execute_script(closed) == every and button.text == "Open all"


def test_a_click_on_a_line_shows_the_steps_it_came_to_and_a_click_there_leads_to_the_step_and_back(
    page: Any, report: tuple[Path, int]
) -> None:
    row = by(page, f"tr[id$='-{report[1] + 4}'].good")  # the branch
    summary = next(part for part in row.find_elements("css selector", "summary") if "compiled" in part.text)
    link = row.find_element("css selector", "a[href^='#s0-']")
    assert not link.is_displayed()
    summary.click()
    assert link.is_displayed()
    target = link.get_attribute("href").partition("#")[2]
    link.click()
    step = by(page, f"[id='{target}']")
    assert page.current_url.endswith(f"#{target}") and step.is_displayed() and in_view(page, step)
    back = next(a for a in step.find_elements("css selector", "a") if a.text == f"line {report[1] + 4}")
    back.click()
    assert in_view(page, row)


def in_view(page: Any, element: Any) -> bool:
    """Whether the middle of an element is within the window."""
    script = "const r = arguments[0].getBoundingClientRect(), y = r.top + r.height / 2; return y >= 0 && y <= innerHeight"
    return bool(page.execute_script(script, element))


def test_a_click_on_a_path_opens_its_programs_and_the_graph_can_be_unfolded(page: Any) -> None:
    tree = by(page, ".tree")
    assert "is False and not True" in tree.text or "is True and not False" in tree.text
    link = next(a for a in tree.find_elements("css selector", "a") if a.text == "path 1")
    box = by(page, "#p0-1")
    assert box.get_attribute("open") is None
    link.click()
    assert box.get_attribute("open") is not None and in_view(page, box.find_element("css selector", "summary"))
    graph = next(part for part in box.find_elements("css selector", "summary") if part.text.startswith("graph of"))
    graph.click()
    assert "matmul(" in box.text and box.find_elements("css selector", ".graph .chip")


@pytest.mark.parametrize(("scheme", "background"), [("light", "rgb(255, 255, 255)"), ("dark", "rgb(13, 17, 23)")])
def test_the_page_is_light_or_dark_as_the_reader_likes(page: Any, scheme: str, background: str) -> None:
    feature = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", feature)
    assert page.execute_script("return getComputedStyle(document.body).backgroundColor") == background
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


@pytest.mark.parametrize("width", [420, 1250])
def test_the_page_is_not_wider_than_the_window(page: Any, width: int) -> None:
    page.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride", {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    )
    by(page, "#all").click()
    wide = page.execute_script("return document.documentElement.scrollWidth")
    page.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    assert wide <= width


def test_drawings_are_pictures_for_a_browser(browser: Any, tmp_path: Path) -> None:
    pytest.importorskip("grandalf")
    compiled, _ = make_report(tmp_path / "report.html")
    compiled.graph().svg(tmp_path / "graph.svg")
    browser.get((tmp_path / "graph.svg").as_uri())
    boxes = browser.find_elements("css selector", ".box")
    assert len(boxes) == len(compiled.graph().drawing.boxes)
    assert browser.execute_script("return document.querySelector('text').getBBox().width") > 0
    script = "return [...document.querySelectorAll('.box')].map(b => [b.getBBox().width, b.parentNode.getBBox().width])"
    assert all(0 < box <= whole for box, whole in browser.execute_script(script))
