"""Other words in a translation, chosen on the page, in a real browser."""

import pytest
from selenium.webdriver import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from tests.serving import page_model
from tests.serving.page_driver import IN_A_BROWSER, Page, running

pytestmark = [pytest.mark.integration, IN_A_BROWSER]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with running(page_model.save(tmp_path_factory.mktemp("words"))) as server:
        yield server


@pytest.fixture
def page(browser, server):
    return Page(browser, server.rest_address)


def words(page):
    return page.browser.find_elements(By.CSS_SELECTOR, "#words-list button")


def others(page):
    return page.run("return [...document.querySelectorAll('#words-others button')].map((b) => b.textContent)")


def shows_others(page, *texts):
    page.wait(lambda: others(page) == list(texts))


def chosen(page):
    """The word whose place is looked at."""
    return page.run("return document.querySelector('#words-list [aria-pressed=true]')?.textContent")


def click_on(page, line, character):
    """On a character of a line of the translation."""
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


def test_a_word_that_is_clicked_can_be_another(page):
    page.type("one two six")
    page.shows("ONE TWO SIX")
    page.wait(lambda: [word.text for word in words(page)] == ["ONE", "TWO", "SIX"])
    click_on(page, 0, 5)
    shows_others(page, "NEW SIX", "OLD SIX")
    assert chosen(page) == "TWO" and page.shown("words-note") == "2 other words in place of “TWO”"
    asked = page.run("return window.asked.findLast((body) => body?.signature_name === 'alternatives').inputs")
    assert asked == {"text": ["one two six"], "prefix": ["ONE"]}
    page.browser.find_elements(By.CSS_SELECTOR, "#words-others button")[1].click()
    page.shows("ONE OLD SIX")
    assert others(page) == [] and chosen(page) == "OLD"
    page.choose("kind", "Translation to translation")
    page.shows_pieces("ONE", "OLD", "SIX")
    assert page.element("words-back").is_displayed() and page.lines() == ["ONE OLD SIX"]
    assert [word.text for word in words(page)] == ["ONE", "OLD", "SIX"]
    click_on(page, 0, 5)
    click_on(page, 0, 9)
    shows_others(page, "NEW", "OLD")
    page.browser.find_elements(By.CSS_SELECTOR, "#words-others button")[0].click()
    page.shows("ONE OLD NEW")
    page.element("words-back").click()
    page.shows("ONE TWO SIX")
    assert not page.element("words-back").is_displayed()
    assert page.errors() == []


def test_a_word_is_replaced_with_the_keyboard(page):
    page.type("one two six")
    page.wait(lambda: len(words(page)) == 3)
    for _ in range(30):
        page.browser.switch_to.active_element.send_keys(Keys.TAB)
        if page.browser.switch_to.active_element.text == "ONE":
            break
    for key in (Keys.END, Keys.ARROW_LEFT, Keys.ENTER):
        page.browser.switch_to.active_element.send_keys(key)
    shows_others(page, "NEW SIX", "OLD SIX")
    page.browser.switch_to.active_element.send_keys(Keys.TAB)
    page.browser.switch_to.active_element.send_keys(Keys.ENTER)
    page.shows("ONE NEW SIX")
    page.wait(lambda: page.browser.switch_to.active_element.text == "NEW")


def test_refused_and_late_alternatives_are_not_shown_for_another_word(page):
    page.type("one two")
    page.wait(lambda: len(words(page)) == 2)
    page.meddle("""
      if (!body || body.signature_name !== "alternatives") return null;
      if (body.inputs.prefix[0]) return new Response('{"error": "too long a line"}', {status: 400});
      await new Promise((resolve) => (window.release = resolve));
      return really();
    """)
    words(page)[0].click()
    page.wait(lambda: page.run("return Boolean(window.release)"))
    words(page)[1].click()
    page.wait(lambda: page.shown("words-note") == "too long a line")
    page.run("window.release(); return new Promise((resolve) => setTimeout(resolve, 100))")
    assert others(page) == [] and chosen(page) == "TWO"
    page.run("window.meddle = null")
    words(page)[1].click()
    shows_others(page, "NEW", "OLD")


def test_a_model_that_cannot_be_told_how_to_begin_offers_none(browser, tmp_path):
    with running(page_model.save(tmp_path, "alternatives")) as server:
        page = Page(browser, server.rest_address)
        page.type("one two")
        page.shows_pieces("ONE", "TWO")
        assert not page.element("words").is_displayed()
        click_on(page, 0, 5)
        assert page.run("return window.asked.every((body) => body?.signature_name !== 'alternatives')")
