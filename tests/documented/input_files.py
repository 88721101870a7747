"""The small files that the commands of the documents read."""

import gzip
import itertools
import random
import re
from pathlib import Path

import numpy as np

from tests.formats import huggingface_folder
from tests.serving.certificates import make_certificate
from tests.tasks.examples import EXAMPLES

from .pages import ROOT

WHO = {
    "A dog": "Ein Hund",
    "The company": "Die Firma",
    "Two men": "Zwei Männer",
    "A girl in blue": "Ein Mädchen in Blau",
}
DOES = {
    "runs through the snow": "läuft durch den Schnee",
    "changed its name last year": "hat letztes Jahr den Namen geändert",
    "is standing on a ladder": "steht auf einer Leiter",
    "is walking": "geht",
    "sleeps": "schläft",
}
WHERE = {
    f"{near} {place}": f"{beim} {platz}"
    for near, beim in {"near": "bei", "behind": "hinter", "before": "vor", "inside": "in"}.items()
    for place, platz in {"a tree": "einem Baum", "the house": "dem Haus", "an old wall": "einer alten Wand"}.items()
}
PAIRS = [
    (f"{' '.join(english)}.", f"{' '.join(german)}.")
    for english, german in (
        zip(*words, strict=True) for words in itertools.product(*map(dict.items, (WHO, DOES, WHERE)))
    )
]
# The texts of file names in the documents.
TRAIN, VALID, TEST = PAIRS[:200], PAIRS[200:206], PAIRS[206:212]
SPLITS = {
    **dict.fromkeys(("a", "train", "more", "m", "few", "animals"), TRAIN),
    **dict.fromkeys(("v", "valid", "val"), VALID),
    **dict.fromkeys(("t", "test", "test_2016_flickr"), TEST),
}
TASKS = {
    "mrg": ("parsing", ("train", "dev", "test", "gold")),
    "tsv": ("classification", ("train", "valid", "test")),
    "conll": ("tagging", ("train", "valid", "test")),
    "json": ("question_answering", ("train", "valid", "test", "train-v1.1", "dev-v1.1")),
}
ENGLISH = "".join(f"{source}\n" for source, _ in TRAIN)
TEXTS = {
    "in.txt": "\n".join(["A dog runs through the snow.", "", *(source for source, _ in TEST[2:])]) + "\n",
    "out.txt": "".join(f"{target}\n" for _, target in TEST),
    "sentences.en": "A dog runs.\nThe company is walking.\n",
    "strings.en": "{name} is walking near %s.\n",
    "page.en.html": "<html><body><p>A <b>dog</b> runs.</p></body></html>\n",
    "doc.en.xml": "<doc><p>A <b>dog</b> runs.</p></doc>\n",
    "messages.po": 'msgid ""\nmsgstr ""\n\nmsgid "A <b>dog</b> runs."\nmsgstr ""\n',
    "film.srt": "1\n00:00:01,000 --> 00:00:02,000\nA dog runs.\n",
    "guide.md": "# A dog\n\nA *dog* runs.\n",
    "strings.csv": "english,german\nA dog runs.,\n",
    "terms.tsv": "dog\tHund|Hunde\n",
    "sentences.txt": "the dog sees the cat .\n",
    "questions.txt": "cats of bo? <context> bo has 3 cats.\n",
    "reviews.txt": "".join(f"{line} {number}\n" for number, line in enumerate(ENGLISH.splitlines())),
    "valid.txt": "A dog runs.\n",
    "memory.tmx": "<tmx><body>{}</body></tmx>\n".format(
        "".join(
            f'<tu><tuv xml:lang="en-US"><seg>{source}</seg></tuv>'
            f'<tuv xml:lang="fr"><seg>Oui: {target}</seg></tuv></tu>\n'
            for source, target in TRAIN
        )
    ),
    "a.tsv": "".join(f"{source}\t{target}\n" for source, target in TRAIN),
}
PACKED = ("captions.en.gz", "multi30k/train.en.gz", "tatoeba/en-de.train.en.gz", "tatoeba/en-fr.train.en.gz")


def write_files(folder: Path) -> None:
    """Writes all files into a folder."""
    for name, pairs in SPLITS.items():
        for language, lines in zip(("en", "de"), zip(*pairs, strict=True), strict=True):
            (folder / f"{name}.{language}").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        # In place of French, because each language needs a different text.
        (folder / f"{name}.fr").write_text("".join(f"Oui: {line}\n" for _, line in pairs), encoding="utf-8")
    for ending, (task, names) in TASKS.items():
        for name in names:
            examples = EXAMPLES[task](random.Random(name), 60 if name.startswith("train") else 6)
            (folder / f"{name}.{ending}").write_text("\n".join(examples) + "\n", encoding="utf-8")
    (folder / "parsed.mrg").write_bytes((folder / "gold.mrg").read_bytes())
    for name, text in TEXTS.items():
        (folder / name).write_text(text, encoding="utf-8")
    for name in PACKED:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(gzip.compress(f"{name} is here.\n{ENGLISH}".encode()))
    huggingface_folder.make_folder(folder / "opus-mt-en-de", np.random.default_rng(1))
    certificate, key = make_certificate(folder)
    Path(certificate).rename(folder / "chain.pem")
    Path(key).rename(folder / "key.pem")
    # Files that the pages show in code blocks.
    code = re.findall(r"^```python\n(# gated\.py\n.*?)^```", _page("change_the_model"), re.MULTILINE | re.DOTALL)
    requests = re.findall(r"^```json\n(.*?)^```", _page("requests"), re.MULTILINE | re.DOTALL)
    (folder / "gated.py").write_text(code[0], encoding="utf-8")
    (folder / "in.jsonl").write_text(next(block for block in requests if '"prefix"' in block), encoding="utf-8")


def _page(name: str) -> str:
    return (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")
