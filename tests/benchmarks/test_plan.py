"""The benchmark of preparing and planning: always the same pairs, and a table of what they cost."""

import pathlib
import re
import subprocess
import sys

import pytest

pytestmark = pytest.mark.integration

ROOT = pathlib.Path(__file__).parents[2]


@pytest.mark.slow
def test_a_table_of_all_sizes(tmp_path):
    command = [sys.executable, "-m", "benchmarks.plan", "--pairs=2000,4000", f"--folder={tmp_path / 'made'}"]
    command += ["--vocab_size=2000"]
    outputs = [subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout for _ in range(2)]
    for output in outputs:  # the second time from what the first one measured
        assert "| pairs | 2,000 | 4,000 |" in output
        for row in ("preparing, processor time", "- encoding", "planning an epoch", "first batch, once planned"):
            assert re.search(rf"^\| {row} \| [\d.,]+ m?s \| [\d.,]+ m?s \|$", output, re.MULTILINE), output
    tables = [output[output.index("| pairs") :] for output in outputs]
    assert tables[0] == tables[1]
    assert [path.name for path in (tmp_path / "made").iterdir()] == ["results.json"]
