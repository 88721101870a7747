import pytest

from tests.programs import run_cases

pytestmark = pytest.mark.integration


def test_every_tree_is_drawn(tmp_path):
    trees = tmp_path / "a.mrg"
    trees.write_text("( (S (NP-SBJ (NN a)\n) (VP (-NONE- *))))\n(S (NN b)) (S (NN c))\n", encoding="utf-8")
    (tmp_path / "bad.mrg").write_text("(S (NN a)))\n", encoding="utf-8")
    plain, whole, bad = run_cases(
        "launch.draw_trees",
        [
            ([f"--input={trees}", f"--output_dir={tmp_path / 'plain'}"], b""),
            ([f"--input={trees}", f"--output_dir={tmp_path / 'whole'}", "--traces"], b""),
            ([f"--input={tmp_path / 'bad.mrg'}", f"--output_dir={tmp_path / 'bad'}", "--notraces"], b""),
        ],
    )
    assert plain[:2] == (0, f"3 trees drawn in {tmp_path / 'plain'}\n") and whole[0] == 0
    assert sorted(path.name for path in (tmp_path / "plain").iterdir()) == ["1.svg", "2.svg", "3.svg"]
    first = (tmp_path / "plain" / "1.svg").read_text()
    assert ">NP<" in first and ">a<" in first and "-NONE-" not in first
    assert ">NP-SBJ<" in (tmp_path / "whole" / "1.svg").read_text()
    assert bad[0] == 1 and "bad.mrg, line 1: a closing bracket without an opening one" in bad[2]
