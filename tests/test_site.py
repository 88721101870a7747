"""The website of the documentation builds without warnings, and its links exist."""

import html.parser
import re
import urllib.parse
from importlib.util import find_spec
from pathlib import Path

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import Select

from t2t_keras import layers
from tests import programs
from tests.serving.page_driver import needs_browser, start_browser

ROOT = Path(__file__).parents[1]

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(
        not all(find_spec(name) for name in ("sphinx", "myst_nb", "furo", "sphinx_copybutton")),
        reason="needs Sphinx, its extensions and furo: pip install '.[docs]'",
    ),
]


class Links(html.parser.HTMLParser):
    """The links, the loaded files and the anchors of a page."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.anchors: set[str] = set()
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attributes}
        self.anchors |= {values[name] for name in ("id", "name") if name in values}
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        if tag in ("link", "script", "img", "iframe"):
            self.loaded += [values[name] for name in ("href", "src") if name in values]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    (options,) = re.findall(r"-m sphinx (.*) --doctree-dir", makefile)
    command = ["-m", "sphinx", *options.split(), "--doctree-dir", folder / "doctrees", ".", folder / "html"]
    result = programs.run(command, cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 0 and "WARNING" not in result.stderr, result.stderr
    return folder / "html"


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Links]:
    return {page.resolve(): Links(page) for page in site.rglob("*.html")}


def test_links_exist(site: Path, pages: dict[Path, Links]) -> None:
    broken = []
    for page, content in pages.items():
        for link in content.links + content.loaded:
            target = urllib.parse.urlsplit(link)
            if target.scheme in ("http", "https", "data"):
                continue
            path = (page.parent / urllib.parse.unquote(target.path)).resolve() if target.path else page
            anchor = urllib.parse.unquote(target.fragment)
            exists = path.is_file() and (path not in pages or not anchor or anchor in pages[path].anchors)
            if not exists:
                broken.append(f"{page.relative_to(site.resolve())}: {link}")
    assert not broken


def test_paper_page_links_to_lines_of_the_code(site: Path) -> None:
    page = (site / "docs/paper.html").read_text(encoding="utf-8")
    (line,) = re.findall(r'href="\.\./t2t_keras/training/optimizer\.py\.html#line-(\d+)"', page)
    source = (ROOT / "t2t_keras/training/optimizer.py").read_text(encoding="utf-8").splitlines()
    assert source[int(line) - 1].startswith("class Adam")


def test_reference_pages_agree_with_the_code(site: Path) -> None:
    pages = {path.stem: path.read_text(encoding="utf-8") for path in (site / "docs/programs").glob("*.html")}
    for path in (ROOT / "launch").glob("*.py"):
        is_program = path.stem != "program" and re.search(
            r"^(def run\(|run = )", path.read_text(encoding="utf-8"), re.M
        )
        assert (path.stem in pages) == bool(is_program)
    flags = {"train": "--data_dir=PATH", "translate": "--beam_size=N", "serve": "--rest_port=N"}
    for program, flag in {**flags, "fit": "--minutes=NUMBER"}.items():
        assert flag in pages[program]
        assert f'href="programs/{program}.html"' in (site / "docs/programs.html").read_text(encoding="utf-8")
    metrics = (site / "docs/metrics.html").read_text(encoding="utf-8")
    for metric in ("t2t_serving_requests_total", ":tensorflow:serving:request_count", "t2t_serving_version"):
        assert metric in metrics
    page = (site / "docs/api.html").read_text(encoding="utf-8")
    for name in layers.__all__:
        assert f'id="t2t_keras.layers.{name}"' in page


@needs_browser
def test_attention_is_interactive_without_a_server(site: Path, tmp_path: Path) -> None:
    browser = start_browser(tmp_path)
    try:
        browser.get((site / "docs/attention.html").as_uri())
        browser.switch_to.frame(browser.find_element(By.CSS_SELECTOR, "iframe.attention"))
        for kind in ("cross", "encoder", "decoder"):
            Select(browser.find_element(By.ID, "attention-kind")).select_by_value(kind)
            piece = browser.find_elements(By.CSS_SELECTOR, "#target-pieces .piece")[2]
            browser.execute_script("arguments[0].click()", piece)
            reading = browser.find_element(By.ID, "reading").text
            assert re.fullmatch(rf"{piece.text} looked at \w+ \d+ %.*", reading)
        assert not [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"]
    finally:
        browser.quit()
