"""SQuAD's files and scores."""

import json

import pytest

from t2t_keras.errors import InputError
from t2t_keras.tasks.registry import task
from t2t_keras.text.splitting import split_context

QUESTIONS = task("question_answering")
PARAGRAPH = "Ada wrote notes.\nIn 1843 the\nnotes were printed in London."


def squad(*questions, context=PARAGRAPH):
    return {"version": "1.1", "data": [{"title": "x", "paragraphs": [{"context": context, "qas": list(questions)}]}]}


def question(*answers, **more):
    return {"id": "q1", "question": "When?", "answers": [{"text": text, "answer_start": 0} for text in answers], **more}


def read_examples(contents):
    return list(QUESTIONS.examples(json.dumps(contents, indent=1).splitlines(), "f"))


def test_questions_are_read_with_their_paragraph():
    plain = "Ada wrote notes. In 1843 the notes were printed in London."
    assert read_examples(squad(question("1843", "In 1843", "1843"), question(is_impossible=True))) == [
        (f"When? <context> {plain}", "1843 <or> In 1843"),
        (f"When? <context> {plain}", "<none>"),
    ]


@pytest.mark.parametrize(
    ("contents", "message"),
    [
        ([], "f: not a SQuAD file: 'data' is missing or has the wrong type"),
        ({"data": [{}]}, "f: not a SQuAD file: 'paragraphs' is missing"),
        (squad("no object"), "f, paragraph 1: not a SQuAD file: 'question' is missing"),
        (squad(question("1843"), context=3), "f, question q1: not a SQuAD file: 'context' is missing or has the wrong"),
        (squad({"id": "q1", "question": "Why?"}), "f, question q1: not a SQuAD file: 'answers' is missing"),
        (squad({"id": "q1", "question": "Why?", "answers": None}), "f, question q1: not a SQuAD file: 'answers' is"),
        (squad(question("1844")), "f, question q1: the answer '1844' is not in its paragraph"),
        (squad({"question": "Why?", "answers": [{}]}), r"f, question 'Why\?': not a SQuAD file: 'text' is missing"),
    ],
)
def test_other_files_are_rejected_by_name(contents, message):
    with pytest.raises(InputError, match=message):
        read_examples(contents)


def test_outputs_are_lines_or_json():
    assert QUESTIONS.outputs(["1843", "", "x"], "f") == ["1843", "", "x"]
    assert QUESTIONS.outputs(["{1, 2}", "x"], "f") == ["{1, 2}", "x"]
    assert QUESTIONS.outputs(json.dumps(squad(question("1843")), indent=1).splitlines(), "f") == ["1843"]
    assert QUESTIONS.outputs(json.dumps(squad(question("1843"))).splitlines(), "f") == ["1843"]


def test_a_long_paragraph_is_learned_in_parts():
    ((source, reference),) = read_examples(squad(question("1843", "In 1843")))
    assert QUESTIONS.training_pairs(source, reference, lambda text: True) == [(source, "1843")]
    fits = lambda text: len(text) < 55  # noqa: E731
    pairs = QUESTIONS.training_pairs(source, reference, fits)
    assert [source for source, _ in pairs] == split_context(source, "<context>", fits)
    assert all(part.startswith("When? <context> ") for part, _ in pairs)
    assert sorted({target for _, target in pairs}) == ["1843", "<none>"]


def test_the_parts_that_have_an_answer_have_it_as_words():
    source = "When? <context> It was 1910 then. He was 10 years old. Then in 2010 he died."
    fits = lambda text: len(text) < 45  # noqa: E731
    answers = dict(QUESTIONS.training_pairs(source, "10", fits))
    assert [part for part, answer in answers.items() if answer == "10"] == ["When? <context> He was 10 years old."]
    within = QUESTIONS.training_pairs(source, "91", fits)
    assert [answer for _, answer in within].count("91") == 1


def values(hypotheses, references):
    return {score.name: score.value for score in QUESTIONS.scores(hypotheses, references)}


def test_scores():
    assert values(["The  Eiffel tower!"], ["Eiffel Tower"]) == {"F1": 100, "exact match": 100}
    # Two words match, of three and of four.
    assert values(["big Eiffel tower"], ["the tower of Eiffel in Paris"])["F1"] == pytest.approx(100 * 4 / 8)
    assert values(["Paris", "x"], ["London <or> Paris", "y"]) == {"F1": 50, "exact match": 50}
    assert values(["x x y"], ["x y y"])["F1"] == pytest.approx(100 * 4 / 6)


def test_a_source_has_a_question_and_a_paragraph():
    QUESTIONS.check_source("When? <context> In 1843.")
    with pytest.raises(InputError, match="^text: there is no <context> between a question and its paragraph$"):
        QUESTIONS.check_source("When? In 1843.")


def test_unpaired_surrogates_become_question_marks_and_invalid_json_is_rejected():
    ((source, answer),) = read_examples(squad(question("In 1843 \ud83d"), context="In 1843 \ud83d in London."))
    assert (source, answer) == ("When? <context> In 1843 ? in London.", "In 1843 ?")
    with pytest.raises(InputError, match="f is not JSON: Expecting"):
        list(QUESTIONS.examples(["question\tanswer"], "f"))


def test_no_answer_is_right_or_wrong():
    assert values(["", "Paris"], ["a <or> Paris"] * 2) == {"F1": 50, "exact match": 50}, "SQuAD's script gives the same"
    assert values(["", "", "x", "<none>"], ["<none>", "y", "<none>", "x"]) == {"F1": 25, "exact match": 25}
    assert QUESTIONS.finish("q", "<none>") == "" and QUESTIONS.finish("q", "none") == "none"
