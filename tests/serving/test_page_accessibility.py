"""The page by the rules of axe-core: for readers with a keyboard, a screen reader or weak eyes."""

import importlib.resources

import pytest
from selenium.webdriver.common.by import By

from tests.serving import page_model
from tests.serving.page_driver import IN_A_BROWSER, Page, running

pytest.importorskip("axe_core_python")
pytestmark = [pytest.mark.integration, IN_A_BROWSER]

# The package's own interface takes older browsers; its script is what is wanted.
AXE = importlib.resources.files("axe_core_python").joinpath("axe.min.js").read_text(encoding="utf-8")
LOOK = """
const told = arguments[arguments.length - 1];
const where = ({ target, failureSummary }) => `${target.join(" ")}: ${failureSummary}`;
axe.run(document).then(({ violations, passes }) =>
  told([violations.map(({ id, nodes }) => [id, nodes.map(where)]), passes.map(({ id }) => id)]));
"""


@pytest.fixture(scope="module")
def page(browser, tmp_path_factory):
    with running(page_model.save(tmp_path_factory.mktemp("shouting"))) as server:
        yield Page(browser, server.rest_address)


@pytest.fixture(params=["light", "dark"])
def in_scheme(page, request):
    """The page as it is opened, in one of the schemes."""
    feature = {"name": "prefers-color-scheme", "value": request.param}
    motion = {"name": "prefers-reduced-motion", "value": "reduce"}  # no colour is looked at on its way to another
    page.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature, motion]})
    page.browser.refresh()
    page.wait(lambda: page.shown("model-name"))
    page.run(AXE + "window.axe = axe;")
    yield page
    page.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def looked_at(page):
    """What breaks a rule, and the names of the rules that hold."""
    return page.browser.execute_async_script(LOOK)


def test_no_rule_is_broken(in_scheme):
    page = in_scheme
    found, held = looked_at(page)
    assert found == []
    assert {"color-contrast", "label", "button-name", "html-has-lang", "landmark-one-main"} <= set(held)
    # A text with everything that there is to see of it.
    page.paste("one two six\nbad\na b c")
    page.wait(lambda: len(page.browser.find_elements(By.CSS_SELECTOR, "#words-list button")) == 3)
    page.shows_pieces("A", "B", "C")
    page.choose("kind", "Text to text")
    page.shows_pieces("a", "b", "c")
    page.browser.find_elements(By.CSS_SELECTOR, "#words-list button")[1].click()
    page.wait(lambda: page.shown("words-others"))
    page.pieces("target")[0].click()
    page.browser.find_element(By.CSS_SELECTOR, "summary").click()
    page.wait(lambda: page.element("details").get_attribute("aria-busy") == "false")
    found, held = looked_at(page)
    assert found == []
    assert "select-name" in held
    # A server that does not answer.
    page.meddle('return body ? new Response(\'{"error": "full"}\', {status: 503}) : null')
    page.paste("another")
    page.wait(lambda: page.shown("problem-text"))
    assert looked_at(page)[0] == []
    page.run("window.meddle = null")
