"""The page at "/" in a real browser, with a real server."""

import json
import pathlib
import sys

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select

from tests.serving import page_model
from tests.serving.page_driver import Page, needs_browser, serve

pytestmark = [pytest.mark.integration, needs_browser]


@pytest.fixture(scope="module")
def export_dir(tmp_path_factory):
    return page_model.save(tmp_path_factory.mktemp("shouting"))


@pytest.fixture(scope="module")
def server(export_dir):
    with serve(export_dir) as server:
        yield server


@pytest.fixture
def page(browser, server):
    return Page(browser, server.rest_address)


def test_text_is_translated_during_typing(page):
    page.type("one")
    page.wait_for_lines("ONE")
    page.type(" two")
    page.wait_for_lines("ONE TWO")
    page.wait_for_pieces("ONE", "TWO")
    page.wait(lambda: page.element("details").get_attribute("aria-busy") == "false")
    page.intercept("return body ? new Promise(() => {}) : null")
    page.type(" three")
    page.wait(lambda: page.lines() == ["…"] and page.element("details").get_attribute("aria-busy") == "true")
    page.run("window.intercept = null")
    page.type(Keys.BACKSPACE * len(" three"))
    page.wait_for_lines("ONE TWO")
    assert page.element("details").get_attribute("aria-busy") == "false"
    assert page.text_of("heading") == "English to German"
    assert page.text_of("model-name") == "shouting, version 1"
    assert page.element("target").get_attribute("aria-live") == "polite"
    page.element("clear").click()
    page.wait_for_lines()
    assert not page.element("details").is_displayed()
    assert page.errors() == []


def test_partial_translations_are_shown(browser, tmp_path):
    with serve(page_model.save(tmp_path / "growing", streams=True)) as server:
        page = Page(browser, server.rest_address)
        page.type("one two forever")
        page.wait(lambda: page.text_of("target") == "ONE TWO FOREVER")
        (line,) = page.browser.find_elements(By.CSS_SELECTOR, "#target span")
        assert (line.get_attribute("class"), line.get_attribute("aria-busy")) == ("waiting", "true")
        page.paste("one two three four")
        page.wait_for_lines("ONE TWO THREE FOUR")
        assert line.get_attribute("aria-busy") == "false"
        assert not page.run("return window.requests.some((body) => body?.signature_name === 'serving_default')")
        page.intercept("return url.endsWith(':stream') ? new Response('{}', {status: 503}) : null")
        page.paste("what is not seen comes at once")
        page.wait_for_lines("WHAT IS NOT SEEN COMES AT ONCE")
        assert page.errors() == []


def test_only_changed_lines_are_requested(page):
    page.paste("one\n\n  two  \none")
    page.wait_for_lines("ONE", "", "TWO", "ONE")
    page.run("window.requests.length = 0")
    page.type("!")
    page.wait_for_lines("ONE", "", "TWO", "ONE!")
    requests = page.run("return window.requests.filter((body) => body.signature_name === 'serving_default')")
    assert [body["inputs"]["text"] for body in requests] == [["one!"]]


def test_alternatives_show_scores_and_differences(page):
    page.type("one two")
    page.wait(lambda: page.text_of("alternatives-list"))
    rows = page.browser.find_elements(By.CSS_SELECTOR, "#alternatives-list li")
    assert [row.text.splitlines() for row in rows] == [["ONE TWO", "−0.50"], ["ONE TWO TOO", "−1.25"]]
    marks = page.browser.find_elements(By.CSS_SELECTOR, "#alternatives-list mark")
    assert [mark.text for mark in marks] == ["TOO"]


def test_hovering_over_a_piece_shows_its_attention(page):
    page.type("a b c")
    page.wait_for_pieces("A", "B", "C")
    assert [piece.text for piece in page.pieces("source")] == ["a", "b", "c"]
    page.hover(page.pieces("target")[0])
    assert page.weights("source") == [0.25, 0, 0.75] and page.weights("target") == [0, 0, 0]
    assert page.text_of("reading") == "A looked at c 75 %, a 25 %"
    page.hover(page.pieces("source")[0])
    assert page.weights("target") == [0.25, 0.25, 1] and page.weights("source") == [0, 0, 0]
    assert page.text_of("reading") == "a was looked at by C 100 %, A 25 %, B 25 %"
    page.hover(page.element("heading"))
    assert page.weights("source") == page.weights("target") == [0, 0, 0] and page.text_of("reading") == ""


def test_heat_map_and_keyboard_show_the_attention(page):
    page.type("a b c")
    page.wait_for_pieces("A", "B", "C")
    assert page.heat_map() == [0.25, 0, 0.75, 0.25, 0.75, 0, 1, 0, 0]
    page.hover(page.browser.find_elements(By.CSS_SELECTOR, "#map tbody td")[4])
    assert page.text_of("reading") == "B looked at b 75 %"
    page.hover(page.browser.find_elements(By.CSS_SELECTOR, "#map thead th")[2])
    assert page.text_of("reading") == "c was looked at by A 75 %"
    page.pieces("target")[0].click()
    page.hover(page.element("heading"))
    assert page.weights("source") == [0.25, 0, 0.75], "a clicked piece stays highlighted"
    page.run("arguments[0].focus()", page.pieces("target")[0])
    for key, reading in (
        (Keys.ARROW_RIGHT, "B looked at b 75 %, a 25 %"),
        (Keys.END, "C looked at a 100 %"),
        (Keys.ARROW_UP, "a was looked at by C 100 %, A 25 %, B 25 %"),
        (Keys.ARROW_DOWN, "C looked at a 100 %"),
        (Keys.HOME, "A looked at c 75 %, a 25 %"),
        (Keys.ESCAPE, ""),
    ):
        page.browser.switch_to.active_element.send_keys(key)
        assert page.text_of("reading") == reading


def test_selecting_kind_layer_and_head_of_the_attention(page):
    page.type("a b")
    page.wait_for_pieces("A", "B")
    assert page.options("kind") == ["Alignment", "Translation to text", "Text to text", "Translation to translation"]
    assert not page.element("attention-layer").is_displayed() and not page.element("attention-head").is_displayed()
    page.choose("kind", "Text to text")
    page.wait_for_pieces("a", "b")
    assert page.options("layer") == ["1 of 2", "2 of 2"] and page.options("head") == ["mean", "1 of 2", "2 of 2"]
    assert page.heat_map() == [1, 0, 0.5, 0.5]
    page.choose("head", "1 of 2")
    assert page.heat_map() == [1, 0, 0, 1]
    page.choose("layer", "2 of 2")
    page.wait(lambda: page.heat_map() == [0, 1, 0, 1])
    page.choose("kind", "Translation to translation")
    page.wait_for_pieces("A", "B")
    assert [piece.text for piece in page.pieces("source")] == ["start", "A"]
    page.type(" c")
    page.wait_for_pieces("A", "B", "C")
    assert page.heat_map() == [1, 0, 0, 0, 1, 0, 0, 0, 1], "the selection stays for a changed sentence"
    page.intercept("""
      const refused = body && body.signature_name === "attention";
      return refused ? new Response('{"error": "too long a line"}', {status: 400}) : null;
    """)
    page.choose("kind", "Translation to text")
    page.wait(lambda: page.text_of("attention-none") == "too long a line")
    page.choose("kind", "Alignment")
    page.wait(lambda: page.heat_map() == [0.25, 0, 0.75, 0.25, 0.75, 0, 1, 0, 0])
    assert page.text_of("attention-none") == ""


def test_examples_and_copying(page):
    page.browser.execute_cdp_cmd(
        "Browser.grantPermissions", {"permissions": ["clipboardReadWrite", "clipboardSanitizedWrite"]}
    )
    page.browser.find_elements(By.CSS_SELECTOR, "#examples button")[1].click()
    page.wait_for_lines("TWO DOGS PLAY IN THE SNOW.")
    assert not page.element("examples").is_displayed()
    page.paste("one\n\ntwo")
    page.wait_for_lines("ONE", "", "TWO")
    page.element("copy").click()
    page.wait(lambda: page.text_of("copy") == "Copied")
    assert page.run("return navigator.clipboard.readText()") == "ONE\n\nTWO"
    page.wait_for_pieces("TWO")
    page.element("source").send_keys(Keys.ARROW_UP)
    page.wait_for_pieces("ONE")  # the details show the line of the caret
    page.browser.find_element(By.CSS_SELECTOR, "[aria-label='Line 3 in detail']").click()
    page.wait_for_pieces("TWO")


def test_late_responses_are_not_shown_for_a_changed_text(page):
    page.intercept("""
      if (!body || !body.inputs.text.includes("first")) return null;
      const response = await send();
      await new Promise((resolve) => setTimeout(resolve, 800));
      window.late = true;
      return response;
    """)
    page.paste("first")
    page.wait(lambda: page.run("return window.requests.some((body) => body && body.inputs.text.includes('first'))"))
    page.paste("second")
    page.wait_for_lines("SECOND")
    seen = set()
    page.wait(lambda: seen.add(tuple(page.lines())) or page.run("return window.late"))
    page.run("return new Promise((resolve) => setTimeout(resolve, 100))")
    seen.add(tuple(page.lines()))
    assert seen == {("SECOND",)}
    page.wait_for_pieces("SECOND")


@pytest.mark.parametrize(
    ("status", "words"), [(503, "The server is busy."), (404, "The server has not loaded the model yet.")]
)
def test_requests_to_a_busy_server_are_repeated(page, status, words):
    page.intercept(f'return body ? new Response(\'{{"error": "full"}}\', {{status: {status}}}) : null')
    page.type("one")
    page.wait(lambda: page.text_of("problem-text").startswith(f"{words} Trying again in"))
    assert page.element("problem").get_attribute("role") == "alert"
    page.run("window.intercept = null")
    page.wait_for_lines("ONE")
    assert not page.element("problem").is_displayed()


def test_unreachable_server(browser, export_dir):
    with serve(export_dir) as first:
        page = Page(browser, first.rest_address)
        page.type("one")
        page.wait_for_lines("ONE")
    page.type(" two")
    page.wait(lambda: page.text_of("problem-text").startswith("The server does not answer."))
    assert page.lines() == ["…"]
    with serve(export_dir, rest_port=int(first.rest_address.rpartition(":")[2])):
        page.element("again").click()
        page.wait_for_lines("ONE TWO")
        assert not page.element("problem").is_displayed()


def test_rejected_sentences_show_the_error(page):
    page.paste("one\nbad\ntwo")
    page.wait(lambda: "…" not in page.lines() and len(page.lines()) == 3)
    first, second, third = page.lines()
    assert (first, third) == ("ONE", "TWO") and "no such word" in second
    assert [span.text for span in page.browser.find_elements(By.CSS_SELECTOR, "#target .refused")] == [second]
    page.paste("x" * 5000)
    page.wait(lambda: page.lines() and "max_sentence_bytes" in page.lines()[0])


def test_missing_signatures_are_not_requested(browser, tmp_path):
    with serve(page_model.save(tmp_path, "align")) as server:
        page = Page(browser, server.rest_address)
        page.type("one")
        page.wait(lambda: page.text_of("alternatives-list"))
        assert page.text_of("attention-none") == "This model does not return its attention."
        assert not page.element("map").is_displayed() and not page.element("ribbons").is_displayed()
        assert page.run("return window.requests.every((body) => !body || body.signature_name !== 'align')")


def test_selecting_the_direction_of_a_multilingual_model(browser, tmp_path):
    file = page_model.save(tmp_path / "both") / "1" / "assets.extra" / "config.json"
    file.write_text(json.dumps({"data": {"directions": ["en-de", "de-en"]}}))
    with serve(tmp_path / "both") as server:
        page = Page(browser, server.rest_address)
        page.type("one")
        page.wait_for_lines("<2DE> ONE")
        assert page.text_of("heading") == "English to German"
        page.wait_for_pieces("<2DE>", "ONE")
        assert [piece.text for piece in page.browser.find_elements(By.CSS_SELECTOR, "#source-pieces .piece")] == ["one"]
        Select(page.element("direction")).select_by_visible_text("German to English")
        page.wait_for_lines("<2EN> ONE")
        assert page.text_of("heading") == "German to English" and page.errors() == []


def test_phone_layout_and_colour_schemes(page):
    page.paste("a rather long sentence of quite a few words that has to be broken\nsecond")
    page.browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride", {"width": 360, "height": 740, "deviceScaleFactor": 1, "mobile": True}
    )
    backgrounds = []
    try:
        page.wait(lambda: page.text_of("alternatives-list"))
        assert page.run("return document.documentElement.scrollWidth") == 360
        for scheme in ("light", "dark"):
            feature = {"name": "prefers-color-scheme", "value": scheme}
            page.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
            backgrounds.append(page.run("return getComputedStyle(document.body).backgroundColor"))
    finally:
        page.browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        page.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    brightness = [sum(int(part) for part in color.strip("rgb()").split(",")) for color in backgrounds]
    assert brightness[0] > 600 > 200 > brightness[1]


def test_right_to_left_text(page):
    page.paste("שלום עולם\nhello")
    page.wait_for_lines("שלום עולם", "HELLO")
    spans = page.browser.find_elements(By.CSS_SELECTOR, "#target span")
    assert [span.value_of_css_property("direction") for span in spans] == ["rtl", "ltr"]
    assert page.element("source").value_of_css_property("direction") == "rtl"


def test_no_external_resources_and_no_inline_scripts(page, server):
    page.type("one")
    page.wait_for_pieces("ONE")
    urls = page.run("return performance.getEntriesByType('resource').map((entry) => entry.name)")
    assert len(urls) > 5 and all(url.startswith(f"http://{server.rest_address}/") for url in urls)
    page.run("const s = document.createElement('script'); s.textContent = 'window.inline = 1'; document.body.append(s)")
    assert page.run("return window.inline") is None
    (refused,) = page.errors()
    assert "Content Security Policy" in refused
    folder = pathlib.Path(sys.modules["t2t_keras.serving.http.rest"].__file__).parents[1] / "page"
    for path in folder.iterdir():
        text = path.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
        assert "http:" not in text and "https:" not in text and "//cdn" not in text, path.name
