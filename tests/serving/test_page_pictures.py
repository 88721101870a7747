"""The pictures of the page in the documents, taken in a real browser of a real model.

    PICTURED_EXPORT=saved_models/mine pytest -m integration tests/serving/test_page_pictures.py

writes them anew; without an export there is nothing to take pictures of.
"""

import os
import pathlib

import pytest
from PIL import Image
from selenium.webdriver.common.by import By

from tests.serving.page_driver import CHROMIUM, DRIVER, Page, running, started_browser

EXPORT = os.environ.get("PICTURED_EXPORT", "")
IMAGES = pathlib.Path(__file__).parents[2] / "docs" / "images"
TEXT = "The house near the river is very old.\nMy sister has been reading all day."

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="needs chromium and chromedriver on the PATH"),
    pytest.mark.skipif(not EXPORT, reason="needs an export, in PICTURED_EXPORT"),
]


@pytest.mark.parametrize(("scheme", "name"), [("light", "serving_page.png"), ("dark", "serving_page_dark.png")])
def test_the_page_is_as_in_the_documents(tmp_path, scheme, name):
    browser = started_browser(tmp_path)
    try:
        with running(pathlib.Path(EXPORT), name=pathlib.Path(EXPORT).name) as server:
            feature = {"name": "prefers-color-scheme", "value": scheme}
            browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
            page = Page(browser, server.rest_address)
            page.paste(TEXT)
            page.wait(lambda: "…" not in page.lines() and len(page.pieces("target")) > 3, 120)
            browser.find_elements(By.CSS_SELECTOR, "#words-list button")[1].click()
            page.wait(lambda: page.shown("words-others"), 120)
            page.pieces("target")[1].click()
            page.run("document.activeElement.blur(); window.scrollTo(0, 0)")
            width, height = page.run("return [1200, document.documentElement.scrollHeight]")
            size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
            browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
            page.wait(lambda: page.element("details").get_attribute("aria-busy") == "false")
            assert page.errors() == []
            assert browser.save_screenshot(str(IMAGES / name))
            # A third of the size.
            Image.open(IMAGES / name).convert("RGB").quantize(256).save(IMAGES / name, optimize=True)
    finally:
        browser.quit()
