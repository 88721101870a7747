"""Takes the screenshots and the animation of the page in the documentation, with a real model.

    PICTURED_EXPORT=saved_models/en_de_fr pytest -m integration tests/serving/test_page_pictures.py

The tests are skipped without an export.
"""

import io
import os
import pathlib
import sys

import pytest
from PIL import Image
from selenium.webdriver.common.by import By

from tests.serving.page_driver import Page, needs_browser, serve, start_browser

sys.path.append(str(pathlib.Path(__file__).parents[2] / "docs/figures"))

from film import Frame, film  # noqa: E402

EXPORT = os.environ.get("PICTURED_EXPORT", "")
IMAGES = pathlib.Path(__file__).parents[2] / "docs" / "images"
SENTENCE = os.environ.get("PICTURED_SENTENCE", "I would like to drink coffee.")
TEXT = "The house near the river is very old.\nI would like to drink a cup of coffee."

pytestmark = [
    pytest.mark.integration,
    needs_browser,
    pytest.mark.skipif(not EXPORT, reason="needs an export, in PICTURED_EXPORT"),
]


@pytest.mark.parametrize(("scheme", "name"), [("light", "serving_page.png"), ("dark", "serving_page_dark.png")])
def test_screenshots_of_the_page(tmp_path, scheme, name):
    browser = start_browser(tmp_path)
    try:
        with serve(pathlib.Path(EXPORT), name=pathlib.Path(EXPORT).name) as server:
            feature = {"name": "prefers-color-scheme", "value": scheme}
            browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
            page = Page(browser, server.rest_address)
            page.paste(TEXT)
            page.wait(lambda: "…" not in page.lines() and len(page.pieces("target")) > 3, 120)
            browser.find_elements(By.CSS_SELECTOR, "#words-list button")[1].click()
            page.wait(lambda: page.text_of("words-others"), 120)
            page.pieces("target")[1].click()
            page.run("document.activeElement.blur(); window.scrollTo(0, 0)")
            width, height = page.run("return [1200, document.documentElement.scrollHeight]")
            size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
            browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
            page.wait(lambda: page.element("details").get_attribute("aria-busy") == "false")
            assert page.errors() == []
            assert browser.save_screenshot(str(IMAGES / name))
            # Reduces the file size to a third.
            Image.open(IMAGES / name).convert("RGB").quantize(256).save(IMAGES / name, optimize=True)
    finally:
        browser.quit()


def test_animation_of_the_page(tmp_path):
    """Types a sentence word by word, and then replaces a word of its translation."""
    browser = start_browser(tmp_path)
    try:
        with serve(pathlib.Path(EXPORT), name=pathlib.Path(EXPORT).name) as server:
            features = [("prefers-color-scheme", "light"), ("prefers-reduced-motion", "reduce")]
            features = [{"name": name, "value": value} for name, value in features]
            browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
            size = {"width": 900, "height": 1150, "deviceScaleFactor": 1, "mobile": False}
            browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
            page = Page(browser, server.rest_address)
            frames = []

            def has_answered():
                requests = "return JSON.stringify(window.requests)"
                page.wait(lambda: page.element("source").get_property("value") in page.run(requests), 120)
                page.wait(lambda: page.lines() and "…" not in page.lines(), 120)
                page.wait(lambda: page.element("details").get_attribute("aria-busy") == "false", 120)

            def take(seconds: float) -> None:
                page.run("window.scrollTo(0, 0)")
                frames.append(Frame(Image.open(io.BytesIO(browser.get_screenshot_as_png())), seconds))

            take(1.0)
            for word in SENTENCE.split():
                page.type(word if len(frames) == 1 else f" {word}")
                has_answered()
                take(0.6)
            frames[-1] = frames[-1]._replace(seconds=3.0)
            before = page.lines()
            browser.find_elements(By.CSS_SELECTOR, "#words-list button")[1].click()
            page.wait(lambda: page.text_of("words-others"), 120)
            take(3.0)
            browser.find_elements(By.CSS_SELECTOR, "#words-others button")[0].click()
            page.wait(lambda: page.lines() not in (before, ["…"]), 120)
            has_answered()
            take(5.0)
            assert page.errors() == []
            title = f"The server's page: it translates {SENTENCE!r} during typing, then another word is chosen"
            (IMAGES / "serving_page_film.svg").write_text(film(frames, title), encoding="utf-8")
    finally:
        browser.quit()
