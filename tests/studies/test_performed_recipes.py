"""A study of recipes from text files to its table, with rows that take seconds."""

import json
from unittest import mock

import pytest

from t2t_keras import evaluation
from t2t_keras.data.prepare import PreparedData
from t2t_keras.inference.translator import Translator
from t2t_keras.studies import paper_tables
from t2t_keras.studies.recipes import table_of
from t2t_keras.studies.rows import Row
from t2t_keras.studies.study import Study
from t2t_keras.studies.study_settings import StudySettings, read_settings
from tests.studies.performed_study import Performing, config_of, record
from tests.training import tiny_training

pytestmark = pytest.mark.integration

SMALL = (
    *("model.num_encoder_layers=1", "model.num_decoder_layers=1", "model.d_model=16", "model.d_ff=32"),
    *("train.tokens_per_batch=100", "train.log_steps=4", "train.checkpoint_steps=4000", "data.vocab_size=301"),
)
BASE = Row("base", "tiny", SMALL)
MARKS = Row("marks", "tiny", (*SMALL, "data.final_marks=true"))
HEADS = Row("heads", "tiny", (*MARKS.settings, "model.num_heads=2"))
JOBS = ["base/seed_1", "marks/seed_1", "marks/seed_1_compared", "heads/seed_1", "heads/seed_1_compared"]


@pytest.fixture(scope="module", autouse=True)
def toy_recipes():
    def make_table(settings, data):
        del data
        return table_of(settings, [BASE, MARKS], [HEADS], MARKS)

    with mock.patch.dict(paper_tables.TABLES, toy_recipes=make_table):
        yield


@pytest.fixture(scope="module")
def study(tmp_path_factory) -> Study:
    folder = tmp_path_factory.mktemp("recipes")
    texts = tiny_training.sentences(90)
    files = []
    for split, part in (("train", texts[10:]), ("valid", texts[:10])):
        for language, lines in (("en", part), ("de", [f"{tiny_training.reverse(line)}." for line in part])):
            path = folder / f"{split}.{language}"
            path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
            files.append(str(path))
    return Study(folder / "study", StudySettings("toy_recipes", files=tuple(files), steps=6, seeds=1))


@pytest.fixture(scope="module")
def performed(study) -> list[Performing]:
    """An evaluation dies; the same command again; and once more."""
    return [Performing(study, ("evaluate", "marks/seed_1")), Performing(study), Performing(study)]


def test_what_fails_is_taken_up_and_what_is_finished_is_reused(performed, study):
    first, second, third = performed
    assert first.performed.failed == ("marks/seed_1",)
    assert first.performed.waiting == ("marks/seed_1_compared",)
    assert second.performed == third.performed == ((), (), (), 0)
    assert {name for _, name in second.calls} == {"marks/seed_1", "marks/seed_1_compared"}
    assert third.calls == []
    assert list(study.states()) == JOBS
    assert read_settings(study.study_dir, {}) == study.settings


def test_each_row_has_its_text_and_rows_of_one_text_share_it(performed, study):
    del performed
    assert sorted(path.name for path in (study.study_dir / "data").iterdir()) == ["base", "marks"]
    counts = {name: PreparedData.open(study.study_dir / "data" / name).counts for name in ("base", "marks")}
    assert counts["marks"]["train"]["final_marks"] == 80 and "final_marks" not in counts["base"]["train"]
    assert Study(study.study_dir, study.settings).data.pairs == counts["base"]["train"]["kept"]
    run = json.loads((study.study_dir / "heads/seed_1/config.json").read_text(encoding="utf-8"))
    assert run["data_dir"].endswith("data/marks") and run["data"]["final_marks"]


def test_records_have_nats_and_differences(performed, study):
    del performed
    folder, data = study.study_dir / "marks/seed_1", PreparedData.open(study.study_dir / "data/marks")
    translator = Translator.load(folder, "averaged_last10", config_of(study, "marks/seed_1").decode)
    sources, references = data.text("valid")
    total, count = evaluation.target_cross_entropy(translator, sources, references)
    results = record(study, "marks/seed_1")
    assert results["valid_nats_per_sentence"] == pytest.approx(total / 10)
    assert results["valid_perplexity"] == pytest.approx(evaluation.perplexity((total, count)))
    compared = record(study, "marks/seed_1_compared")
    difference = results["valid_bleu"] - record(study, "base/seed_1")["valid_bleu"]
    assert compared["difference"] == pytest.approx(difference)
    assert 0 <= compared["p_value"] <= 1
    head, *rows = study.table.cells(study.states())
    assert head == [
        *("row", "recipe", "BLEU (dev)", "difference", "p", "nats per sentence (dev)"),
        *("updates", "hours", "params ×10^6"),
    ]
    assert [row[0] for row in rows] == ["base", "marks", "heads"]
    assert rows[0][3:5] == ["", ""] and rows[1][3:5] == [f"{difference:+.2f}", f"{compared['p_value']:.3f}"]
