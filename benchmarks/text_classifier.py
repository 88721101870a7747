"""Scores a linear classifier of words and word pairs on labelled texts, for comparison with a model.

    python -m benchmarks.text_classifier --train=train.tsv --valid=valid.tsv --test=test.tsv

The classifier is scikit-learn's TF-IDF with logistic regression. The best of five regularisations is selected on the
validation set. Files have the format of `launch.prepare_data --task=classification`: a text, a tab and a label per
line; also compressed.
"""

import argparse
import json
import time

from t2t_keras.data.sources.corpora_files import read_lines
from t2t_keras.tasks.registry import task

_STRENGTHS = (0.1, 0.3, 1.0, 3.0, 10.0)  # inverse strengths, as in scikit-learn


def read(path: str) -> tuple[list[str], list[str]]:
    """Returns the texts and their labels."""
    pairs = list(task("classification").examples(read_lines(path), path))
    return [text for text, _ in pairs], [label for _, label in pairs]


def main() -> None:
    """Prints the accuracy and the macro F1 of the test set as JSON."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import accuracy_score, f1_score

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train", required=True)
    parser.add_argument("--valid", required=True)
    parser.add_argument("--test", required=True)
    arguments = parser.parse_args()
    (texts, labels), valid, test = map(read, (arguments.train, arguments.valid, arguments.test))
    start = time.perf_counter()
    vectorizer = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, token_pattern=r"\S+")
    features = vectorizer.fit_transform(texts)
    by_accuracy = {}
    for strength in _STRENGTHS:
        classifier = LogisticRegression(C=strength, max_iter=1000).fit(features, labels)
        by_accuracy[accuracy_score(valid[1], classifier.predict(vectorizer.transform(valid[0])))] = strength, classifier
    best = max(by_accuracy)
    strength, classifier = by_accuracy[best]
    predicted = classifier.predict(vectorizer.transform(test[0]))
    results = {
        "features": features.shape[1],
        "C": strength,
        "valid_accuracy": round(best, 4),
        "test_accuracy": round(accuracy_score(test[1], predicted), 4),
        "test_macro_f1": round(f1_score(test[1], predicted, average="macro"), 4),
        "seconds": round(time.perf_counter() - start, 1),
    }
    print(json.dumps(results))


if __name__ == "__main__":
    main()
