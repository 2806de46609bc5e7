"""The report in a real browser: what a person sees, clicks, and would take for broken."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement

from bucketlake import ConsistentBuckets, create_table
from bucketlake.inspection import Layout, PartitionLayout
from bucketlake.layout import BaseFile, FileSlice
from bucketlake.report import TableReport

Browser = webdriver.Chrome

NEEDED = "Chromium is missing: apt-get install chromium chromium-driver"
SWITCHES = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--window-size=1200,1600",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
)  # fmt: skip
ODD = '<img src=x onerror="document.title=1">'


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if chromium is None or driver is None:
        if os.environ.get("CI") == "true":
            pytest.fail(NEEDED, pytrace=False)
        pytest.skip(NEEDED)
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    for switch in SWITCHES:
        options.add_argument(switch)
    opened = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    yield opened
    opened.quit()


@pytest.fixture(scope="module")
def report() -> TableReport:
    table = create_table(
        "memory://reported",
        "id STRING, kind STRING, ts BIGINT",
        key="id",
        partition="kind",
        ordering="ts",
        index=ConsistentBuckets(4),
        table_type="MERGE_ON_READ",
        maintenance="off",
        url_encode=True,
    )
    for batch in range(3):
        kinds = ["a", "b", ODD]
        table.upsert([{"id": f"{n}", "kind": kinds[n % 3], "ts": batch} for n in range(90)])
    return table.report()


def opened(browser: Browser, report: TableReport, folder: Path) -> None:
    browser.get(report.save(folder / "report.html").as_uri())


def texts(browser: Browser, selector: str) -> list[str]:
    return [one.text for one in browser.find_elements(By.CSS_SELECTOR, selector)]


def one(browser: Browser, selector: str) -> WebElement:
    return browser.find_element(By.CSS_SELECTOR, selector)


def check_quiet(browser: Browser) -> None:
    assert browser.get_log("browser") == [], "the console is clean, and nothing was asked of a network"


def test_a_person_sees_the_table_and_clicks_through_it(
    browser: Browser, report: TableReport, tmp_path: Path
) -> None:
    opened(browser, report, tmp_path)
    assert one(browser, "h1").text == "reported"
    assert "consistent hashing" in one(browser, "#facts").text
    assert "Nothing" in one(browser, "#advice").text
    paths = texts(browser, "#partitions tbody tr td:first-child")
    assert paths == sorted(part.partition for part in report.facts.layout.partitions)
    assert not browser.find_elements(By.TAG_NAME, "img"), "names in a table are text"
    one(browser, "#partitions tbody tr").click()
    assert one(browser, "tr.open .ring")
    assert len(browser.find_elements(By.CSS_SELECTOR, "tr.open table tbody tr")) == 4
    one(browser, "#partitions tbody tr").send_keys(Keys.ENTER)
    assert not browser.find_elements(By.CSS_SELECTOR, "tr.open")
    one(browser, "th[data-by=total]").click()
    sizes = [part.size_bytes for part in report.facts.layout.partitions]
    first = texts(browser, "#partitions tbody tr td:first-child")[0]
    largest = max(report.facts.layout.partitions, key=lambda part: part.size_bytes)
    assert one(browser, "th[data-by=total]").get_attribute("aria-sort") == "descending"
    assert first == largest.partition or sizes.count(max(sizes)) > 1
    one(browser, "#filter").send_keys("b")
    assert "b" in texts(browser, "#partitions tbody tr td:first-child")
    assert len(browser.find_elements(By.CSS_SELECTOR, "#growth rect")) == 3
    assert len(browser.find_elements(By.CSS_SELECTOR, "#timeline tbody tr")) == 3
    check_quiet(browser)


def test_light_and_dark_are_told_apart(browser: Browser, report: TableReport, tmp_path: Path) -> None:
    opened(browser, report, tmp_path)
    grounds = []
    for _ in range(2):
        grounds.append(one(browser, "body").value_of_css_property("background-color"))
        one(browser, "#theme").click()
    assert len(set(grounds)) == 2
    check_quiet(browser)


def test_advice_comes_with_a_command(browser: Browser, tmp_path: Path) -> None:
    table = create_table(
        tmp_path / "orders", "id STRING, ts BIGINT", key="id", ordering="ts", buckets=1,
        table_type="MERGE_ON_READ", maintenance="off",
    )  # fmt: skip
    for batch in range(27):
        table.upsert([{"id": "a", "ts": batch}])
    opened(browser, table.report(), tmp_path)
    assert "Compact 1 file groups" in one(browser, "#advice").text
    assert one(browser, "#advice code").text == f"bucketlake compact {tmp_path}/orders --yes"
    check_quiet(browser)


def test_ten_thousand_partitions_stay_usable(browser: Browser, report: TableReport, tmp_path: Path) -> None:
    def group(partition: str, number: int) -> FileSlice:
        file_id = f"{number:08d}-0000"
        base = BaseFile(f"{partition}/{file_id}", file_id, "0", "1", 1000 + 7 * number)
        return FileSlice(partition, file_id, "1", base, ())

    partitions = tuple(
        PartitionLayout(f"day={number:05d}", tuple(group(f"day={number:05d}", n) for n in range(4)), 4)
        for number in range(10_000)
    )
    many = TableReport(replace(report.facts, layout=Layout(partitions, "simple buckets"), rings={}))
    assert len(many.html) < 4_000_000
    opened(browser, many, tmp_path)
    assert "10,000 of 10,000 partitions" in one(browser, ".tools").text
    assert len(texts(browser, "#partitions tbody tr")) == 50
    one(browser, "#on").click()
    assert texts(browser, "#partitions tbody tr td:first-child")[0] == "day=00050"
    one(browser, "#filter").send_keys("09999")
    assert texts(browser, "#partitions tbody tr td:first-child") == ["day=09999"]
    check_quiet(browser)
