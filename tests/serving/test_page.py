"""The page at "/", in a real browser, with a real server behind it."""

import json
import pathlib
import sys

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select

from tests.serving import page_model
from tests.serving.page_driver import IN_A_BROWSER, Page, running

pytestmark = [pytest.mark.integration, IN_A_BROWSER]


@pytest.fixture(scope="module")
def export_dir(tmp_path_factory):
    return page_model.save(tmp_path_factory.mktemp("shouting"))


@pytest.fixture(scope="module")
def server(export_dir):
    with running(export_dir) as server:
        yield server


@pytest.fixture
def page(browser, server):
    return Page(browser, server.rest_address)


def test_a_text_is_translated_as_it_is_typed(page):
    page.type("one")
    page.shows("ONE")
    page.type(" two")
    page.shows("ONE TWO")
    page.shows_pieces("ONE", "TWO")
    page.wait(lambda: page.element("details").get_attribute("aria-busy") == "false")
    page.meddle("return body ? new Promise(() => {}) : null")
    page.type(" three")
    page.wait(lambda: page.lines() == ["…"] and page.element("details").get_attribute("aria-busy") == "true")
    page.run("window.meddle = null")
    page.type(Keys.BACKSPACE * len(" three"))
    page.shows("ONE TWO")
    assert page.element("details").get_attribute("aria-busy") == "false"
    assert page.shown("heading") == "English to German"
    assert page.shown("model-name") == "shouting, version 1"
    assert page.element("target").get_attribute("aria-live") == "polite"
    page.element("clear").click()
    page.shows()
    assert not page.element("details").is_displayed()
    assert page.errors() == []


def test_a_translation_is_seen_while_it_is_made(browser, tmp_path):
    with running(page_model.save(tmp_path / "growing", grows=True)) as server:
        page = Page(browser, server.rest_address)
        page.type("one two forever")
        page.wait(lambda: page.shown("target") == "ONE TWO FOREVER")
        (line,) = page.browser.find_elements(By.CSS_SELECTOR, "#target span")
        assert (line.get_attribute("class"), line.get_attribute("aria-busy")) == ("waiting", "true")
        page.paste("one two three four")
        page.shows("ONE TWO THREE FOUR")
        assert line.get_attribute("aria-busy") == "false"
        assert not page.run("return window.asked.some((body) => body?.signature_name === 'serving_default')")
        page.meddle("return url.endsWith(':stream') ? new Response('{}', {status: 503}) : null")
        page.paste("what is not seen comes at once")
        page.shows("WHAT IS NOT SEEN COMES AT ONCE")
        assert page.errors() == []


def test_each_line_is_a_sentence_and_only_what_changes_is_asked_for(page):
    page.paste("one\n\n  two  \none")
    page.shows("ONE", "", "TWO", "ONE")
    page.run("window.asked.length = 0")
    page.type("!")
    page.shows("ONE", "", "TWO", "ONE!")
    asked = page.run("return window.asked.filter((body) => body.signature_name === 'serving_default')")
    assert [body["inputs"]["text"] for body in asked] == [["one!"]]


def test_the_alternatives_come_with_their_scores_and_differences(page):
    page.type("one two")
    page.wait(lambda: page.shown("alternatives-list"))
    rows = page.browser.find_elements(By.CSS_SELECTOR, "#alternatives-list li")
    assert [row.text.splitlines() for row in rows] == [["ONE TWO", "−0.50"], ["ONE TWO TOO", "−1.25"]]
    marks = page.browser.find_elements(By.CSS_SELECTOR, "#alternatives-list mark")
    assert [mark.text for mark in marks] == ["TOO"]


def test_a_piece_that_is_pointed_at_lights_what_it_goes_with(page):
    page.type("a b c")
    page.shows_pieces("A", "B", "C")
    assert [piece.text for piece in page.pieces("source")] == ["a", "b", "c"]
    page.point_at(page.pieces("target")[0])
    assert page.weights("source") == [0.25, 0, 0.75] and page.weights("target") == [0, 0, 0]
    assert page.shown("reading") == "A looked at c 75 %, a 25 %"
    page.point_at(page.pieces("source")[0])
    assert page.weights("target") == [0.25, 0.25, 1] and page.weights("source") == [0, 0, 0]
    assert page.shown("reading") == "a was looked at by C 100 %, A 25 %, B 25 %"
    page.point_at(page.element("heading"))
    assert page.weights("source") == page.weights("target") == [0, 0, 0] and page.shown("reading") == ""


def test_the_heat_map_and_the_keyboard_tell_the_same(page):
    page.type("a b c")
    page.shows_pieces("A", "B", "C")
    assert page.heat_map() == [0.25, 0, 0.75, 0.25, 0.75, 0, 1, 0, 0]
    page.point_at(page.browser.find_elements(By.CSS_SELECTOR, "#map tbody td")[4])
    assert page.shown("reading") == "B looked at b 75 %"
    page.point_at(page.browser.find_elements(By.CSS_SELECTOR, "#map thead th")[2])
    assert page.shown("reading") == "c was looked at by A 75 %"
    page.pieces("target")[0].click()
    page.point_at(page.element("heading"))
    assert page.weights("source") == [0.25, 0, 0.75], "what is clicked stays lit"
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
        assert page.shown("reading") == reading


def test_the_attention_of_every_kind_layer_and_head_can_be_chosen(page):
    page.type("a b")
    page.shows_pieces("A", "B")
    assert page.options("kind") == ["Alignment", "Translation to text", "Text to text", "Translation to translation"]
    assert not page.element("attention-layer").is_displayed() and not page.element("attention-head").is_displayed()
    page.choose("kind", "Text to text")
    page.shows_pieces("a", "b")
    assert page.options("layer") == ["1 of 2", "2 of 2"] and page.options("head") == ["mean", "1 of 2", "2 of 2"]
    assert page.heat_map() == [1, 0, 0.5, 0.5]
    page.choose("head", "1 of 2")
    assert page.heat_map() == [1, 0, 0, 1]
    page.choose("layer", "2 of 2")
    page.wait(lambda: page.heat_map() == [0, 1, 0, 1])
    page.choose("kind", "Translation to translation")
    page.shows_pieces("A", "B")
    assert [piece.text for piece in page.pieces("source")] == ["start", "A"]
    page.type(" c")
    page.shows_pieces("A", "B", "C")
    assert page.heat_map() == [1, 0, 0, 0, 1, 0, 0, 0, 1], "another sentence has the same choice"
    page.meddle("""
      const refused = body && body.signature_name === "attention";
      return refused ? new Response('{"error": "too long a line"}', {status: 400}) : null;
    """)
    page.choose("kind", "Translation to text")
    page.wait(lambda: page.shown("attention-none") == "too long a line")
    page.choose("kind", "Alignment")
    page.wait(lambda: page.heat_map() == [0.25, 0, 0.75, 0.25, 0.75, 0, 1, 0, 0])
    assert page.shown("attention-none") == ""


def test_an_example_is_a_text_and_its_translation_is_copied(page):
    page.browser.execute_cdp_cmd(
        "Browser.grantPermissions", {"permissions": ["clipboardReadWrite", "clipboardSanitizedWrite"]}
    )
    page.browser.find_elements(By.CSS_SELECTOR, "#examples button")[1].click()
    page.shows("TWO DOGS PLAY IN THE SNOW.")
    assert not page.element("examples").is_displayed()
    page.paste("one\n\ntwo")
    page.shows("ONE", "", "TWO")
    page.element("copy").click()
    page.wait(lambda: page.shown("copy") == "Copied")
    assert page.run("return navigator.clipboard.readText()") == "ONE\n\nTWO"
    page.shows_pieces("TWO")
    page.element("source").send_keys(Keys.ARROW_UP)
    page.shows_pieces("ONE")  # the line of the caret is the one in detail
    page.browser.find_element(By.CSS_SELECTOR, "[aria-label='Line 3 in detail']").click()
    page.shows_pieces("TWO")


def test_an_answer_that_comes_late_never_stands_beside_another_text(page):
    page.meddle("""
      if (!body || !body.inputs.text.includes("first")) return null;
      const answer = await really();
      await new Promise((resolve) => setTimeout(resolve, 800));
      window.late = true;
      return answer;
    """)
    page.paste("first")
    page.wait(lambda: page.run("return window.asked.some((body) => body && body.inputs.text.includes('first'))"))
    page.paste("second")
    page.shows("SECOND")
    seen = set()
    page.wait(lambda: seen.add(tuple(page.lines())) or page.run("return window.late"))
    page.run("return new Promise((resolve) => setTimeout(resolve, 100))")
    seen.add(tuple(page.lines()))
    assert seen == {("SECOND",)}
    page.shows_pieces("SECOND")


@pytest.mark.parametrize(
    ("status", "words"), [(503, "The server is busy."), (404, "The server has not loaded the model yet.")]
)
def test_a_busy_server_is_asked_again(page, status, words):
    page.meddle(f'return body ? new Response(\'{{"error": "full"}}\', {{status: {status}}}) : null')
    page.type("one")
    page.wait(lambda: page.shown("problem-text").startswith(f"{words} Trying again in"))
    assert page.element("problem").get_attribute("role") == "alert"
    page.run("window.meddle = null")
    page.shows("ONE")
    assert not page.element("problem").is_displayed()


def test_a_server_that_is_away_is_said_to_be_and_asked_again(browser, export_dir):
    with running(export_dir) as first:
        page = Page(browser, first.rest_address)
        page.type("one")
        page.shows("ONE")
    page.type(" two")
    page.wait(lambda: page.shown("problem-text").startswith("The server does not answer."))
    assert page.lines() == ["…"]
    with running(export_dir, rest_port=int(first.rest_address.rpartition(":")[2])):
        page.element("again").click()
        page.shows("ONE TWO")
        assert not page.element("problem").is_displayed()


def test_a_sentence_that_is_refused_says_why_and_spares_the_others(page):
    page.paste("one\nbad\ntwo")
    page.wait(lambda: "…" not in page.lines() and len(page.lines()) == 3)
    first, second, third = page.lines()
    assert (first, third) == ("ONE", "TWO") and "no such word" in second
    assert [span.text for span in page.browser.find_elements(By.CSS_SELECTOR, "#target .refused")] == [second]
    page.paste("x" * 5000)
    page.wait(lambda: page.lines() and "max_sentence_bytes" in page.lines()[0])


def test_what_a_model_does_not_have_is_said_and_not_asked_for(browser, tmp_path):
    with running(page_model.save(tmp_path, "align")) as server:
        page = Page(browser, server.rest_address)
        page.type("one")
        page.wait(lambda: page.shown("alternatives-list"))
        assert page.shown("attention-none") == "This model does not return its attention."
        assert not page.element("map").is_displayed() and not page.element("ribbons").is_displayed()
        assert page.run("return window.asked.every((body) => !body || body.signature_name !== 'align')")


def test_the_direction_of_a_model_of_several_can_be_chosen(browser, tmp_path):
    file = page_model.save(tmp_path / "both") / "1" / "assets.extra" / "config.json"
    file.write_text(json.dumps({"data": {"directions": ["en-de", "de-en"]}}))
    with running(tmp_path / "both") as server:
        page = Page(browser, server.rest_address)
        page.type("one")
        page.shows("<2DE> ONE")
        assert page.shown("heading") == "English to German"
        page.shows_pieces("<2DE>", "ONE")
        assert [piece.text for piece in page.browser.find_elements(By.CSS_SELECTOR, "#source-pieces .piece")] == ["one"]
        Select(page.element("direction")).select_by_visible_text("German to English")
        page.shows("<2EN> ONE")
        assert page.shown("heading") == "German to English" and page.errors() == []


def test_the_page_fits_a_phone_and_both_schemes(page):
    page.paste("a rather long sentence of quite a few words that has to be broken\nsecond")
    page.browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride", {"width": 360, "height": 740, "deviceScaleFactor": 1, "mobile": True}
    )
    backgrounds = []
    try:
        page.wait(lambda: page.shown("alternatives-list"))
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


def test_text_runs_in_its_own_direction(page):
    page.paste("שלום עולם\nhello")
    page.shows("שלום עולם", "HELLO")
    spans = page.browser.find_elements(By.CSS_SELECTOR, "#target span")
    assert [span.value_of_css_property("direction") for span in spans] == ["rtl", "ltr"]
    assert page.element("source").value_of_css_property("direction") == "rtl"


def test_nothing_comes_from_elsewhere_and_nothing_is_inline(page, server):
    page.type("one")
    page.shows_pieces("ONE")
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
