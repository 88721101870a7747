"""The page as a reader has it before them: what they do with it and see of it."""

import contextlib
import pathlib
import shutil

import pytest
from selenium import webdriver
from selenium.webdriver import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import Select, WebDriverWait

from t2t_keras.serving.options import ServingOptions
from t2t_keras.serving.server import Server

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
IN_A_BROWSER = pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="needs chromium and chromedriver on the PATH")
# Nothing but the page and its server: no first run, no updates, no connections of the browser's own.
ARGUMENTS = [
    "--headless=new",
    "--no-sandbox",
    "--disable-dev-shm-usage",  # of which containers have 64 MB
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]

# What the page asks is written down in `asked`; `meddle(url, body)`, where a test sets it, may answer instead.
WATCH = """
window.asked = [];
window.meddle = null;
const real = window.fetch;
window.fetch = async (url, options = {}) => {
  const body = options.body ? JSON.parse(options.body) : null;
  window.asked.push(body);
  const answer = window.meddle && (await window.meddle(url, body, () => real(url, {...options, signal: undefined})));
  return answer || real(url, options);
};
"""


def started_browser(profile: pathlib.Path) -> webdriver.Chrome:
    """A browser whose pages write down what they ask; `profile` is a folder of its own."""
    options = webdriver.ChromeOptions()
    assert CHROMIUM
    options.binary_location = CHROMIUM
    for argument in [*ARGUMENTS, "--window-size=1200,900", f"--user-data-dir={profile}"]:
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    browser = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    browser.execute_cdp_cmd("Page.enable", {})
    browser.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": WATCH})
    return browser


@contextlib.contextmanager
def running(export_dir: pathlib.Path, rest_port: int = 0, name: str = "shouting"):
    """A server of a model."""
    server = Server(ServingOptions(str(export_dir), name=name, rest_port=rest_port, grpc_port=0, grace_seconds=5))
    server.start()
    try:
        yield server
    finally:
        server.stop()


class Page:
    """What a reader does with the page and sees of it."""

    def __init__(self, browser: webdriver.Chrome, address: str) -> None:
        self.browser = browser
        browser.get_log("browser")
        browser.get(f"http://{address}/")
        self.wait(lambda: self.shown("model-name") or self.shown("problem-text"))

    def wait(self, condition, seconds: float = 20):
        return WebDriverWait(self.browser, seconds, poll_frequency=0.05).until(lambda _: condition())

    def run(self, script: str, *arguments):
        return self.browser.execute_script(script, *arguments)

    def meddle(self, body: str) -> None:
        self.run(f"window.meddle = async (url, body, really) => {{ {body} }}")

    def element(self, name: str):
        return self.browser.find_element(By.ID, name)

    def shown(self, name: str) -> str:
        return self.element(name).text

    def type(self, text: str) -> None:
        self.element("source").send_keys(text)

    def paste(self, text: str) -> None:
        """All at once, in the place of what was there."""
        event = "source.dispatchEvent(new Event('input', {bubbles: true}))"
        self.run(f"const source = document.getElementById('source'); source.value = arguments[0]; {event}", text)

    def lines(self) -> list[str]:
        """The translations that are not waiting, line by line."""
        spans = "[...document.querySelectorAll('#target span')]"
        return self.run(f"return {spans}.map((s) => s.classList.contains('waiting') ? '…' : s.textContent)")

    def shows(self, *lines: str) -> None:
        self.wait(lambda: self.lines() == list(lines))

    def pieces(self, side: str) -> list:
        return self.browser.find_elements(By.CSS_SELECTOR, f"#{side}-pieces .piece")

    def shows_pieces(self, *pieces: str) -> None:
        query = "[...document.querySelectorAll('#target-pieces .piece')]"
        self.wait(lambda: self.run(f"return {query}.map((piece) => piece.textContent)") == list(pieces))

    def weights(self, side: str) -> list[float]:
        """How strongly each piece of a side is lit."""
        query = f"[...document.querySelectorAll('#{side}-pieces .piece')]"
        return self.run(f"return {query}.map((piece) => Number(piece.style.getPropertyValue('--weight')))")

    def choose(self, field: str, text: str) -> None:
        """Chooses which attention is shown: a "kind", "layer" or "head"."""
        Select(self.element(f"attention-{field}")).select_by_visible_text(text)

    def options(self, field: str) -> list[str]:
        """What may be chosen."""
        return [option.text for option in Select(self.element(f"attention-{field}")).options]

    def heat_map(self) -> list[float]:
        """The weight of each cell."""
        cells = "[...document.querySelectorAll('#map tbody td')]"
        return self.run(f"return {cells}.map((cell) => Number(cell.style.getPropertyValue('--weight')))")

    def point_at(self, element) -> None:
        ActionChains(self.browser).move_to_element(element).perform()

    def errors(self) -> list[str]:
        return [entry["message"] for entry in self.browser.get_log("browser") if entry["level"] == "SEVERE"]
