"""The notebooks run with few updates and little data, and the published files contain the outputs of a full run."""

import json
import os
import pathlib

import pytest

from tests import programs

ROOT = pathlib.Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "docs/notebooks").glob("*.ipynb"))
# Texts that each notebook prints, independent of training, and how often.
PRINTED = {
    "fine_tune": {"BLEU of ": 2, "copied: 44 weights": 1, " --> ": 2},
    "own_files": {"model card: ": 1, " --> ": 2, "exit status: 0": 1},
    "paper": {"copied without a mistake": 2},
    "serving": {" --> ": 11, "400 ": 2, "same as over REST: True": 1, "all requests answered: True": 1},
}

# The amounts of data in a full run, and the amounts here.
SMALLER_DATA = {
    "fine_tune": ("valid=100, test=100", "valid=5, test=5"),
    "own_files": ("range(4000)", "range(600)"),
    "paper": ("examples(500)", "examples(20)"),
    "serving": ("range(3000)", "range(400)"),
}

# A prefix for a notebook that does not use TensorFlow itself, so that its programs are forks too.
FORK_PROGRAMS = """
import multiprocessing
from tests import programs
programs._fork_context, programs.quick_mode = lambda: multiprocessing.get_context("fork"), True
"""


def code_cells(path: pathlib.Path) -> list[dict]:
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return [cell for cell in cells if cell["cell_type"] == "code"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_published_cells_ran_in_order_without_errors(path):
    cells = code_cells(path)
    assert [cell["execution_count"] for cell in cells] == [*range(1, len(cells) + 1)]
    assert not [output for cell in cells for output in cell["outputs"] if output["output_type"] == "error"]


# The slow notebooks train, score and search like the others.
SLOW = {"fine_tune", "paper"}
MARKED_NOTEBOOKS = [
    pytest.param(path, id=path.stem, marks=pytest.mark.slow if path.stem in SLOW else pytest.mark.integration)
    for path in NOTEBOOKS
]


@pytest.mark.parametrize("path", MARKED_NOTEBOOKS)
def test_notebooks_run_with_few_updates(path, tmp_path):
    cells = ["".join(cell["source"]) for cell in code_cells(path)]
    (settings,) = [cell for cell in cells if cell.startswith("UPDATES = ")]
    cells[cells.index(settings)] = "UPDATES = 4"
    code, (many, few) = "\n".join(cells), SMALLER_DATA[path.stem]
    assert many in code
    code = code.replace(many, few)
    if path.stem == "own_files":
        assert "tensorflow" not in code and "t2t_keras" not in code
        for function, forked in (("run", "run"), ("Popen", "Program")):
            assert f"subprocess.{function}([sys.executable, " in code
            code = code.replace(f"subprocess.{function}([sys.executable, ", f"programs.{forked}([")
        code = FORK_PROGRAMS + code
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "MPLBACKEND": "agg"}
    result = programs.run(["-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    for words, times in PRINTED[path.stem].items():
        assert result.stdout.count(words) == times, words
