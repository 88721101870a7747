"""What the page shows of other tasks than translation, in a real browser."""

import contextlib

import pytest
from selenium.webdriver.common.by import By

from t2t_keras.serving.options import ServingOptions
from t2t_keras.serving.server import Server
from t2t_keras.tasks.registry import TASKS
from tests.serving import page_model
from tests.serving.page_driver import IN_A_BROWSER, Page

pytestmark = [pytest.mark.integration, IN_A_BROWSER]


@pytest.fixture(scope="module")
def addresses(tmp_path_factory):
    """Of a server for each task, all of the model that shouts."""
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
def opened(browser, addresses):
    return lambda task: Page(browser, addresses[task])


@pytest.mark.parametrize("task", TASKS)
def test_the_page_says_what_the_model_does(opened, task):
    page = opened(task)
    titles = {"translation": "English to German", "parsing": "Parsing", "question_answering": "Questions"}
    titles["classification"] = "Classification"
    assert page.shown("heading") == page.browser.title == titles.get(task, page.shown("heading"))
    assert (page.shown("source-label"), page.shown("hint")) != ("", "")
    assert (page.shown("heading") == "English to German") == (task == "translation")
    page.paste("one")
    page.shows("ONE")
    drawn = task in ("parsing", "tagging", "question_answering")
    page.wait(lambda: page.element("details").is_displayed())
    assert page.element("picture").is_displayed() == drawn
    page.wait(lambda: page.element("details").get_attribute("aria-busy") == "false")
    writes_tokens = task in ("translation", "summarisation", "denoising")
    page.wait(lambda: page.element("attention-choice").is_displayed() == writes_tokens)
    assert page.errors() == []


def test_a_tree_is_drawn(opened):
    page = opened("parsing")
    page.paste("(s (np (xx the) (xx dog)) (vp (vbz barks)))")
    page.shows("(S (NP (XX THE) (XX DOG)) (VP (VBZ BARKS)))")
    texts = page.browser.find_elements(By.CSS_SELECTOR, "#picture svg text")
    found = {text.text: (float(text.get_attribute("x")), float(text.get_attribute("y"))) for text in texts}
    assert set(found) == {"S", "NP", "VP", "VBZ", "THE", "DOG", "BARKS"}  # XX says nothing
    assert found["S"][1] < found["NP"][1] < found["THE"][1] and found["NP"][1] == found["VP"][1]
    assert found["THE"][0] < found["NP"][0] < found["DOG"][0] < found["VP"][0] == found["BARKS"][0]
    assert len(page.browser.find_elements(By.CSS_SELECTOR, "#picture svg line")) == 6
    page.paste("what is no tree (")
    page.shows("WHAT IS NO TREE (")
    assert page.errors() == []


def test_labels_stand_beside_their_words(opened):
    page = opened("tagging")
    page.paste("b-per o  i-per")
    page.shows("B-PER O  I-PER")
    page.wait(lambda: page.shown("picture-frame"))
    labelled = page.browser.find_elements(By.CSS_SELECTOR, "#picture .labelled")
    assert [element.text for element in labelled] == ["b-perB-PER", "i-perI-PER"]
    assert [element.find_element(By.TAG_NAME, "small").text for element in labelled] == ["B-PER", "I-PER"]
    hues = [element.get_attribute("style") for element in labelled]
    assert hues[0] == hues[1] != ""


def test_an_answer_is_marked_in_its_paragraph_or_there_is_none(opened):
    page = opened("question_answering")
    answer = "JSON.stringify({outputs: {translation: body.inputs.text.map(() => ANSWER), score: [0]}})"
    asked = "if (body?.signature_name === 'serving_default') return new Response(" + answer + "); return null"
    page.meddle(asked.replace("ANSWER", "'in 1843'"))
    page.paste("When? <context> It was printed İn İt In 1843 (there.")
    page.shows("in 1843")
    page.wait(lambda: page.shown("picture-frame") == "It was printed İn İt In 1843 (there.")
    assert page.browser.find_element(By.CSS_SELECTOR, "#picture mark").text == "In 1843"
    page.meddle(asked.replace("ANSWER", "''"))
    page.paste("Who? <context> It was printed In 1843 there.")
    page.shows("no answer")
    page.wait(lambda: not page.browser.find_elements(By.CSS_SELECTOR, "#picture mark"))
    assert page.shown("picture-frame") == "It was printed In 1843 there."
