"""The benchmark of preparing and planning: always the same pairs, and a table of what they cost."""

import json
import pathlib
import re
import subprocess
import sys

import pytest

from benchmarks import plan

pytestmark = pytest.mark.integration

ROOT = pathlib.Path(__file__).parents[2]


def test_the_pairs_are_always_the_same(tmp_path):
    for name in ("one", "two"):
        plan._generate(tmp_path / name, 1000)
    sides = [(tmp_path / "one" / side).read_bytes() for side in ("source", "target")]
    assert sides == [(tmp_path / "two" / side).read_bytes() for side in ("source", "target")]
    assert [len(side.splitlines()) for side in sides] == [1000, 1000]
    words = [len(line.split()) for line in sides[0].decode("ascii").splitlines()]
    assert min(words) >= 2 and 8 < sum(words) / len(words) < 13
    assert sides[0] != sides[1]


@pytest.mark.parametrize("pairs", [1000, 250_000])
def test_so_few_repeated_pairs_that_they_are_one_shard_are_refused(pairs, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["plan", f"--repeated={pairs}", f"--folder={tmp_path / 'made'}"])
    with pytest.raises(SystemExit, match=f"^--repeated={pairs}: a shard has up to 250000 pairs; give a larger "):
        plan.main()
    assert not (tmp_path / "made").exists()


def test_other_flags_are_not_given_what_was_measured_before(tmp_path, monkeypatch, capsys):
    calls = []

    def measured(folder, pairs, flags):
        folder.mkdir()
        calls.append((pairs, flags.vocab_size))
        return {}

    def run(*flags):
        monkeypatch.setattr(sys, "argv", ["plan", "--pairs=2000", f"--folder={tmp_path}", *flags])
        plan.main()

    monkeypatch.setattr(plan, "_measured", measured)
    monkeypatch.setattr(plan, "_table", lambda results: "the table")
    (tmp_path / "2000").mkdir()  # of a run that was interrupted
    for _ in range(2):
        run("--vocab_size=2000")
    with pytest.raises(SystemExit, match="2000 pairs were measured with different flags"):
        run("--vocab_size=3000")
    with pytest.raises(SystemExit, match="several limits require --repeated"):
        run("--open_files=40:1000,40:40")
    assert calls == [(2000, 2000)] and capsys.readouterr().out == "the table\n" * 2


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


@pytest.mark.slow
def test_many_shards_of_one_text_under_limits_of_open_files(tmp_path):
    command = [sys.executable, "-m", "benchmarks.plan", "--repeated=5000000", f"--folder={tmp_path}"]
    command += ["--vocab_size=8000", "--open_files=40:1000,40:40"]
    output = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    result = json.loads(output)
    assert 20 < result["shards"] < 25
    for limits, allowed, open_files in (("40:1000", 84, 40), ("40:40", 40, 20)):
        for state in ("from disk", "from memory"):
            measured = result[f"{limits}, {state}"]
            assert measured["kept"] >= 5_000_000
            assert measured["open_files_allowed"] == allowed
            assert open_files < measured["open_files"] < allowed
            assert measured["batch"] > 0
    assert not list(tmp_path.iterdir())
