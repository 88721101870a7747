"""The page for tasks other than translation, in a real browser."""

import contextlib

import pytest
from selenium.webdriver.common.by import By

from t2t_keras.serving.options import ServingOptions
from t2t_keras.serving.server import Server
from t2t_keras.tasks.registry import TASKS
from tests.serving import page_model
from tests.serving.page_driver import Page, needs_browser

pytestmark = [pytest.mark.integration, needs_browser]


@pytest.fixture(scope="module")
def addresses(tmp_path_factory):
    """Address by task: one server per task, with the same model."""
    with contextlib.ExitStack() as stack:
        addresses = {}
        for task in TASKS:
            export_dir = page_model.save(tmp_path_factory.mktemp(task), task=task)
            server = Server(ServingOptions(str(export_dir), name=task, rest_port=0, grpc_port=0, grace_seconds=5))
            server.start()
            stack.callback(server.stop)
            addresses[task] = server.rest_address
        yield addresses


@pytest.fixture
def open_page(browser, addresses):
    return lambda task: Page(browser, addresses[task])


@pytest.mark.parametrize("task", TASKS)
def test_heading_and_hints_of_each_task(open_page, task):
    page = open_page(task)
    titles = {"translation": "English to German", "parsing": "Parsing", "question_answering": "Questions"}
    titles["classification"] = "Classification"
    assert page.text_of("heading") == page.browser.title == titles.get(task, page.text_of("heading"))
    assert (page.text_of("source-label"), page.text_of("hint")) != ("", "")
    assert (page.text_of("heading") == "English to German") == (task == "translation")
    page.paste("one")
    page.wait_for_lines("ONE")
    drawn = task in ("parsing", "tagging", "question_answering")
    page.wait(lambda: page.element("details").is_displayed())
    assert page.element("picture").is_displayed() == drawn
    page.wait(lambda: page.element("details").get_attribute("aria-busy") == "false")
    writes_tokens = task in ("translation", "summarisation", "denoising")
    page.wait(lambda: page.element("attention-choice").is_displayed() == writes_tokens)
    assert page.errors() == []


def test_parse_trees_are_drawn(open_page):
    page = open_page("parsing")
    page.paste("(s (np (xx the) (xx dog)) (vp (vbz barks)))")
    page.wait_for_lines("(S (NP (XX THE) (XX DOG)) (VP (VBZ BARKS)))")
    texts = page.browser.find_elements(By.CSS_SELECTOR, "#picture svg text")
    positions = {text.text: (float(text.get_attribute("x")), float(text.get_attribute("y"))) for text in texts}
    assert set(positions) == {"S", "NP", "VP", "VBZ", "THE", "DOG", "BARKS"}  # the page omits the label XX
    assert positions["S"][1] < positions["NP"][1] < positions["THE"][1] and positions["NP"][1] == positions["VP"][1]
    assert positions["THE"][0] < positions["NP"][0] < positions["DOG"][0] < positions["VP"][0] == positions["BARKS"][0]
    assert len(page.browser.find_elements(By.CSS_SELECTOR, "#picture svg line")) == 6
    page.paste("what is no tree (")
    page.wait_for_lines("WHAT IS NO TREE (")
    assert page.errors() == []


def test_labels_are_shown_next_to_their_words(open_page):
    page = open_page("tagging")
    page.paste("b-per o  i-per")
    page.wait_for_lines("B-PER O  I-PER")
    page.wait(lambda: page.text_of("picture-frame"))
    labelled = page.browser.find_elements(By.CSS_SELECTOR, "#picture .labelled")
    assert [element.text for element in labelled] == ["b-perB-PER", "i-perI-PER"]
    assert [element.find_element(By.TAG_NAME, "small").text for element in labelled] == ["B-PER", "I-PER"]
    hues = [element.get_attribute("style") for element in labelled]
    assert hues[0] == hues[1] != ""


def test_answers_are_highlighted_in_their_context(open_page):
    page = open_page("question_answering")
    response = "JSON.stringify({outputs: {translation: body.inputs.text.map(() => ANSWER), score: [0]}})"
    script = "if (body?.signature_name === 'serving_default') return new Response(" + response + "); return null"
    page.intercept(script.replace("ANSWER", "'in 1843'"))
    page.paste("When? <context> It was printed İn İt In 1843 (there.")
    page.wait_for_lines("in 1843")
    page.wait(lambda: page.text_of("picture-frame") == "It was printed İn İt In 1843 (there.")
    assert page.browser.find_element(By.CSS_SELECTOR, "#picture mark").text == "In 1843"
    page.intercept(script.replace("ANSWER", "''"))
    page.paste("Who? <context> It was printed In 1843 there.")
    page.wait_for_lines("no answer")
    page.wait(lambda: not page.browser.find_elements(By.CSS_SELECTOR, "#picture mark"))
    assert page.text_of("picture-frame") == "It was printed In 1843 there."
