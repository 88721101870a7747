"""Drives the server's page in Chromium: types, clicks, and reads what it shows."""

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
needs_browser = pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="needs chromium and chromedriver on the PATH")
# The browser connects only to the server of the page: no first-run pages, updates or background requests.
ARGUMENTS = [
    "--headless=new",
    "--no-sandbox",
    "--disable-dev-shm-usage",  # containers have only 64 MB of shared memory
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]

# Records the body of each request of the page in `requests`. A test can set `intercept(url, body, send)`, which
# replaces the response if it returns one.
RECORD_REQUESTS = """
window.requests = [];
window.intercept = null;
const originalFetch = window.fetch;
window.fetch = async (url, options = {}) => {
  const body = options.body ? JSON.parse(options.body) : null;
  window.requests.push(body);
  const send = () => originalFetch(url, {...options, signal: undefined});
  const response = window.intercept && (await window.intercept(url, body, send));
  return response || originalFetch(url, options);
};
"""


def start_browser(profile: pathlib.Path) -> webdriver.Chrome:
    """Starts a browser with the user data folder `profile`, which records the requests of its pages."""
    options = webdriver.ChromeOptions()
    assert CHROMIUM
    options.binary_location = CHROMIUM
    for argument in [*ARGUMENTS, "--window-size=1200,900", f"--user-data-dir={profile}"]:
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    browser = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    browser.execute_cdp_cmd("Page.enable", {})
    browser.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": RECORD_REQUESTS})
    return browser


@contextlib.contextmanager
def serve(export_dir: pathlib.Path, rest_port: int = 0, name: str = "shouting"):
    """Serves an export while the context is open."""
    server = Server(ServingOptions(str(export_dir), name=name, rest_port=rest_port, grpc_port=0, grace_seconds=5))
    server.start()
    try:
        yield server
    finally:
        server.stop()


class Page:
    """The page of a server."""

    def __init__(self, browser: webdriver.Chrome, address: str) -> None:
        self.browser = browser
        browser.get_log("browser")
        browser.get(f"http://{address}/")
        self.wait(lambda: self.text_of("model-name") or self.text_of("problem-text"))

    def wait(self, condition, seconds: float = 20):
        return WebDriverWait(self.browser, seconds, poll_frequency=0.05).until(lambda _: condition())

    def run(self, script: str, *arguments):
        return self.browser.execute_script(script, *arguments)

    def intercept(self, body: str) -> None:
        self.run(f"window.intercept = async (url, body, send) => {{ {body} }}")

    def element(self, name: str):
        return self.browser.find_element(By.ID, name)

    def text_of(self, name: str) -> str:
        return self.element(name).text

    def type(self, text: str) -> None:
        self.element("source").send_keys(text)

    def paste(self, text: str) -> None:
        """Replaces the source text in one step."""
        event = "source.dispatchEvent(new Event('input', {bubbles: true}))"
        self.run(f"const source = document.getElementById('source'); source.value = arguments[0]; {event}", text)

    def lines(self) -> list[str]:
        """The lines of the translation, with "…" for lines that are not translated yet."""
        spans = "[...document.querySelectorAll('#target span')]"
        return self.run(f"return {spans}.map((s) => s.classList.contains('waiting') ? '…' : s.textContent)")

    def wait_for_lines(self, *lines: str) -> None:
        self.wait(lambda: self.lines() == list(lines))

    def pieces(self, side: str) -> list:
        return self.browser.find_elements(By.CSS_SELECTOR, f"#{side}-pieces .piece")

    def wait_for_pieces(self, *pieces: str) -> None:
        query = "[...document.querySelectorAll('#target-pieces .piece')]"
        self.wait(lambda: self.run(f"return {query}.map((piece) => piece.textContent)") == list(pieces))

    def weights(self, side: str) -> list[float]:
        """The highlighting of each piece of one side."""
        query = f"[...document.querySelectorAll('#{side}-pieces .piece')]"
        return self.run(f"return {query}.map((piece) => Number(piece.style.getPropertyValue('--weight')))")

    def choose(self, field: str, text: str) -> None:
        """Selects an option of "kind", "layer" or "head"."""
        Select(self.element(f"attention-{field}")).select_by_visible_text(text)

    def options(self, field: str) -> list[str]:
        return [option.text for option in Select(self.element(f"attention-{field}")).options]

    def heat_map(self) -> list[float]:
        """The weights of the cells, row by row."""
        cells = "[...document.querySelectorAll('#map tbody td')]"
        return self.run(f"return {cells}.map((cell) => Number(cell.style.getPropertyValue('--weight')))")

    def hover(self, element) -> None:
        ActionChains(self.browser).move_to_element(element).perform()

    def errors(self) -> list[str]:
        return [entry["message"] for entry in self.browser.get_log("browser") if entry["level"] == "SEVERE"]
