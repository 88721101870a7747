"""Checks the accessibility of the page with the rules of axe-core."""

import importlib.resources

import pytest
from selenium.webdriver.common.by import By

from tests.serving import page_model
from tests.serving.page_driver import Page, needs_browser, serve

pytest.importorskip("axe_core_python")
pytestmark = [pytest.mark.integration, needs_browser]

# The Python interface of the package expects an older Selenium, so the tests run its script directly.
AXE = importlib.resources.files("axe_core_python").joinpath("axe.min.js").read_text(encoding="utf-8")
CHECK = """
const done = arguments[arguments.length - 1];
const describe = ({ target, failureSummary }) => `${target.join(" ")}: ${failureSummary}`;
axe.run(document).then(({ violations, passes }) =>
  done([violations.map(({ id, nodes }) => [id, nodes.map(describe)]), passes.map(({ id }) => id)]));
"""


@pytest.fixture(scope="module")
def page(browser, tmp_path_factory):
    with serve(page_model.save(tmp_path_factory.mktemp("shouting"))) as server:
        yield Page(browser, server.rest_address)


@pytest.fixture(params=["light", "dark"])
def in_scheme(page, request):
    """The page after loading, in a light or dark colour scheme."""
    feature = {"name": "prefers-color-scheme", "value": request.param}
    motion = {"name": "prefers-reduced-motion", "value": "reduce"}  # so that no colour is checked during a transition
    page.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature, motion]})
    page.browser.refresh()
    page.wait(lambda: page.text_of("model-name"))
    page.run(AXE + "window.axe = axe;")
    yield page
    page.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def check_rules(page):
    """Returns the violations, and the names of the rules that hold."""
    return page.browser.execute_async_script(CHECK)


def test_accessibility_rules(in_scheme):
    page = in_scheme
    violations, passed = check_rules(page)
    assert violations == []
    assert {"color-contrast", "label", "button-name", "html-has-lang", "landmark-one-main"} <= set(passed)
    # A text for which the page shows all its parts.
    page.paste("one two six\nbad\na b c")
    page.wait(lambda: len(page.browser.find_elements(By.CSS_SELECTOR, "#words-list button")) == 3)
    page.wait_for_pieces("A", "B", "C")
    page.choose("kind", "Text to text")
    page.wait_for_pieces("a", "b", "c")
    page.browser.find_elements(By.CSS_SELECTOR, "#words-list button")[1].click()
    page.wait(lambda: page.text_of("words-others"))
    page.pieces("target")[0].click()
    page.browser.find_element(By.CSS_SELECTOR, "summary").click()
    page.wait(lambda: page.element("details").get_attribute("aria-busy") == "false")
    violations, passed = check_rules(page)
    assert violations == []
    assert "select-name" in passed
    # A server that does not respond.
    page.intercept('return body ? new Response(\'{"error": "full"}\', {status: 503}) : null')
    page.paste("another")
    page.wait(lambda: page.text_of("problem-text"))
    assert check_rules(page)[0] == []
    page.run("window.intercept = null")
