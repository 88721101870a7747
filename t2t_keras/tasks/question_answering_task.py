"""The question answering task: finding the answer to a question in a paragraph."""

import collections
import json
import re
import string
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from t2t_keras.errors import InputError
from t2t_keras.tasks.score import Score, check_lines
from t2t_keras.tasks.task import Lines, ScoringSettings, Task
from t2t_keras.text.repair import repair, without_surrogates
from t2t_keras.text.splitting import split_context

CONTEXT = "<context>"  # between a question and its paragraph
NO_ANSWER = "<none>"
OR = " <or> "  # between alternative correct answers

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_COMPARABLE_TO = "the SQuAD script, which ignores case, punctuation, articles and white space"


class QuestionAnsweringTask(Task):
    """Answers a question about a paragraph; a source is a question, `<context>` and the paragraph.

    Files are in the JSON format of SQuAD, version 1 or 2. A paragraph that is too long is split, if possible at the
    ends of sentences, and the best answer of its parts is used. A model learns to write `<none>` for parts without the
    answer.
    """

    name = "question_answering"
    metric = "f1"
    data = {"target_language": "en", "max_length": 512, "max_length_ratio": 1e9}
    decode = {"max_length_factor": 0.0, "max_length_offset": 50}
    held_out_sides = (0,)
    context = CONTEXT
    no_answer = NO_ANSWER

    def examples(self, lines: Iterable[str], path: str) -> Iterator[tuple[str, str]]:
        for number, paragraph in enumerate(_paragraphs(lines, path), start=1):
            for question in _field(paragraph, "qas", list, path):
                question_text = repair(_field(question, "question", str, f"{path}, paragraph {number}"))
                place = f"{path}, question {question.get('id', repr(question_text))}"
                context = repair(_field(paragraph, "context", str, place))
                entries = [] if question.get("is_impossible") is True else _field(question, "answers", list, place)
                answers = [repair(_field(answer, "text", str, place)) for answer in entries]
                for answer in answers:
                    if answer not in context or not answer:
                        raise InputError(f"{place}: the answer {answer!r} is not in its paragraph")
                yield f"{question_text} {CONTEXT} {context}", OR.join(dict.fromkeys(answers)) or NO_ANSWER

    def outputs(self, lines: Iterable[str], path: str) -> list[str]:
        """Reads outputs or references; see `Task.outputs`.

        A file that is not JSON has one answer per line; an empty line means that there is no answer.
        """
        lines = list(lines)
        if lines and re.match(r'\s*\{\s*("|$)', lines[0]):
            return [reference for _, reference in self.examples(lines, path)]
        return lines

    def symbols(self, references: Iterable[str]) -> list[str]:
        return [CONTEXT, NO_ANSWER]

    def check_source(self, source: str) -> None:
        if CONTEXT not in source:
            raise InputError(f"text: there is no {CONTEXT} between a question and its paragraph")

    def target(self, source: str, reference: str) -> str:
        return reference.partition(OR)[0] or NO_ANSWER

    def target_in_graph(self, sources: Any, references: Any) -> Any:
        import tensorflow as tf

        answers = tf.strings.regex_replace(references, f"{OR}.*", "")
        return tf.where(answers == "", NO_ANSWER, answers)

    def training_pairs(self, source: str, reference: str, fits: Callable[[str], bool]) -> Iterable[tuple[str, str]]:
        answer = self.target(source, reference)
        if fits(source):
            return [(source, answer)]
        parts = split_context(source, CONTEXT, fits)
        texts = [part.partition(CONTEXT)[2] for part in parts]
        # The parts that contain the answer as whole words or, if there are none, as a substring.
        words = re.compile(rf"(?<!\w){re.escape(answer)}(?!\w)")
        matches = [text for text in texts if words.search(text)] or [text for text in texts if answer in text]
        return [(part, answer if text in matches else NO_ANSWER) for part, text in zip(parts, texts, strict=True)]

    def finish(self, source: str, output: str) -> str:
        return "" if output == NO_ANSWER else output

    def finish_in_graph(self, sources: Any, outputs: Any) -> Any:
        import tensorflow as tf

        return tf.where(outputs == NO_ANSWER, "", outputs)

    def scores(self, hypotheses: Lines, references: Lines, settings: ScoringSettings | None = None) -> list[Score]:
        """Returns the word F1 and the exact match as in the SQuAD script, each for the most similar correct answer."""
        check_lines(hypotheses, references)
        pairs = [(line, _correct_answers(reference)) for line, reference in zip(hypotheses, references, strict=True)]
        f1 = sum(max(_f1(line, answer) for answer in answers) for line, answers in pairs)
        exact = sum(any(_words(line) == _words(answer) for answer in answers) for line, answers in pairs)
        values = {"F1": f1, "exact match": exact}
        return [Score(name, 100 * value / len(pairs), "SQuAD", _COMPARABLE_TO) for name, value in values.items()]


def _paragraphs(lines: Iterable[str], path: str) -> Iterator[dict[str, Any]]:
    try:
        contents = json.loads("\n".join(lines))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not JSON: {error}") from None
    for article in _field(contents, "data", list, path):
        yield from _field(article, "paragraphs", list, path)


def _field(value: Any, name: str, kind: type, place: str) -> Any:
    """Returns a field of a JSON object; raises an `InputError` if it is missing or not of type `kind`.

    Lone surrogates in strings are replaced by question marks.
    """
    if not isinstance(value, dict) or not isinstance(value.get(name), kind):
        raise InputError(f"{place}: not a SQuAD file: {name!r} is missing or has the wrong type")
    return without_surrogates(value[name]) if kind is str else value[name]


def _words(answer: str) -> list[str]:
    """Returns the words to compare, without case, punctuation and articles; none for `NO_ANSWER`."""
    if answer == NO_ANSWER:
        return []
    plain = "".join(character for character in answer.lower() if character not in string.punctuation)
    return _ARTICLES.sub(" ", plain).split()


def _correct_answers(reference: str) -> list[str]:
    """Returns the correct answers that have words to compare or, if there are none, `NO_ANSWER`."""
    return [answer for answer in reference.split(OR) if _words(answer)] or [NO_ANSWER]


def _f1(hypothesis: str, answer: str) -> float:
    answer_words, expected_words = _words(hypothesis), _words(answer)
    if not answer_words or not expected_words:  # the absence of an answer is either correct or wrong
        return float(answer_words == expected_words)
    common = sum((collections.Counter(answer_words) & collections.Counter(expected_words)).values())
    return 2 * common / (len(answer_words) + len(expected_words))
