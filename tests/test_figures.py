"""The drawings of the documents are what their program draws, and lead to what is there."""

import ast
import re
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "docs/figures"))

import draw  # noqa: E402
import global_batch  # noqa: E402
import search_steps  # noqa: E402


@pytest.mark.parametrize("name", draw.FIGURES)
def test_what_is_committed_is_what_is_drawn(name: str) -> None:
    assert (draw.FOLDER / name).read_text(encoding="utf-8") == draw.FIGURES[name]()


@pytest.mark.parametrize("name", draw.FIGURES)
def test_each_box_leads_to_a_file_that_defines_what_it_names(name: str) -> None:
    links = re.findall(r'<a href="([^"#]+)#?([^"]*)">', (draw.FOLDER / name).read_text(encoding="utf-8"))
    assert links
    for file, defined in links:
        tree = ast.parse((draw.FOLDER / file).read_text(encoding="utf-8"))
        names = {node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef | ast.FunctionDef)}
        assert not defined or defined in names, f"{file}#{defined}"


def test_every_word_of_code_in_the_papers_figures_is_in_the_file_that_its_box_leads_to() -> None:
    for name in ("figure_1.svg", "figure_2.svg"):
        text = (draw.FOLDER / name).read_text(encoding="utf-8")
        boxes = re.findall(r'<a href="([^"#]+)[^>]*>(.*?)</a>', text, re.DOTALL)
        for file, box in boxes:
            for word in re.findall(r'class="code">(?:\w+\.)?(\w+)<', box):
                assert re.search(rf"\b{word}\b", (draw.FOLDER / file).read_text(encoding="utf-8")), word


def test_each_number_of_replicas_has_the_same_pairs() -> None:
    for num_replicas in (1, 2, 8):
        ids = np.concatenate([share.ravel() for share in global_batch.dealt(num_replicas)])
        assert sorted(set(ids)) == list(range(14)) and np.count_nonzero(ids) == 106


def test_the_drawn_search_ends_with_the_results_of_the_search() -> None:
    steps, result = search_steps.searched()
    ended = sorted((each.score for step in steps for each in step if each.fate == "ends"), reverse=True)
    np.testing.assert_allclose(ended[:2], result.scores[0], rtol=1e-6)
