"""Replacing words of a translation on the page, in a real browser."""

import pytest
from selenium.webdriver import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from tests.serving import page_model
from tests.serving.page_driver import Page, needs_browser, serve

pytestmark = [pytest.mark.integration, needs_browser]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with serve(page_model.save(tmp_path_factory.mktemp("words"))) as server:
        yield server


@pytest.fixture
def page(browser, server):
    return Page(browser, server.rest_address)


def word_buttons(page):
    return page.browser.find_elements(By.CSS_SELECTOR, "#words-list button")


def other_words(page):
    return page.run("return [...document.querySelectorAll('#words-others button')].map((b) => b.textContent)")


def wait_for_others(page, *texts):
    page.wait(lambda: other_words(page) == list(texts))


def selected_word(page):
    """The selected word."""
    return page.run("return document.querySelector('#words-list [aria-pressed=true]')?.textContent")


def click_on(page, line, character):
    """Clicks on a character of a line of the translation."""
    x, y = page.run(
        """
        const text = document.querySelectorAll("#target span")[arguments[0]].firstChild;
        const range = document.createRange();
        range.setStart(text, arguments[1]);
        range.setEnd(text, arguments[1] + 1);
        const { left, top, width, height } = range.getBoundingClientRect();
        return [left + width / 2, top + height / 2];
        """,
        *(line, character),
    )
    actions = ActionChains(page.browser)
    actions.w3c_actions.pointer_action.move_to_location(int(x), int(y))
    actions.w3c_actions.pointer_action.click()
    actions.perform()


def test_replacing_a_clicked_word(page):
    page.type("one two six")
    page.wait_for_lines("ONE TWO SIX")
    page.wait(lambda: [word.text for word in word_buttons(page)] == ["ONE", "TWO", "SIX"])
    click_on(page, 0, 5)
    wait_for_others(page, "NEW SIX", "OLD SIX")
    assert selected_word(page) == "TWO" and page.text_of("words-note") == "2 other words in place of “TWO”"
    inputs = page.run("return window.requests.findLast((body) => body?.signature_name === 'alternatives').inputs")
    assert inputs == {"text": ["one two six"], "prefix": ["ONE"]}
    page.browser.find_elements(By.CSS_SELECTOR, "#words-others button")[1].click()
    page.wait_for_lines("ONE OLD SIX")
    assert other_words(page) == [] and selected_word(page) == "OLD"
    page.choose("kind", "Translation to translation")
    page.wait_for_pieces("ONE", "OLD", "SIX")
    assert page.element("words-back").is_displayed() and page.lines() == ["ONE OLD SIX"]
    assert [word.text for word in word_buttons(page)] == ["ONE", "OLD", "SIX"]
    click_on(page, 0, 5)
    click_on(page, 0, 9)
    wait_for_others(page, "NEW", "OLD")
    page.browser.find_elements(By.CSS_SELECTOR, "#words-others button")[0].click()
    page.wait_for_lines("ONE OLD NEW")
    page.element("words-back").click()
    page.wait_for_lines("ONE TWO SIX")
    assert not page.element("words-back").is_displayed()
    assert page.errors() == []


def test_replacing_a_word_with_the_keyboard(page):
    page.type("one two six")
    page.wait(lambda: len(word_buttons(page)) == 3)
    for _ in range(30):
        page.browser.switch_to.active_element.send_keys(Keys.TAB)
        if page.browser.switch_to.active_element.text == "ONE":
            break
    for key in (Keys.END, Keys.ARROW_LEFT, Keys.ENTER):
        page.browser.switch_to.active_element.send_keys(key)
    wait_for_others(page, "NEW SIX", "OLD SIX")
    page.browser.switch_to.active_element.send_keys(Keys.TAB)
    page.browser.switch_to.active_element.send_keys(Keys.ENTER)
    page.wait_for_lines("ONE NEW SIX")
    page.wait(lambda: page.browser.switch_to.active_element.text == "NEW")


def test_rejected_and_late_alternatives_are_not_shown_for_a_different_word(page):
    page.type("one two")
    page.wait(lambda: len(word_buttons(page)) == 2)
    page.intercept("""
      if (!body || body.signature_name !== "alternatives") return null;
      if (body.inputs.prefix[0]) return new Response('{"error": "too long a line"}', {status: 400});
      await new Promise((resolve) => (window.release = resolve));
      return send();
    """)
    word_buttons(page)[0].click()
    page.wait(lambda: page.run("return Boolean(window.release)"))
    word_buttons(page)[1].click()
    page.wait(lambda: page.text_of("words-note") == "too long a line")
    page.run("window.release(); return new Promise((resolve) => setTimeout(resolve, 100))")
    assert other_words(page) == [] and selected_word(page) == "TWO"
    page.run("window.intercept = null")
    word_buttons(page)[1].click()
    wait_for_others(page, "NEW", "OLD")


def test_model_without_prefixes_offers_no_other_words(browser, tmp_path):
    with serve(page_model.save(tmp_path, "alternatives")) as server:
        page = Page(browser, server.rest_address)
        page.type("one two")
        page.wait_for_pieces("ONE", "TWO")
        assert not page.element("words").is_displayed()
        click_on(page, 0, 5)
        assert page.run("return window.requests.every((body) => body?.signature_name !== 'alternatives')")
