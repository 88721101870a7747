import os
import re
import resource

import pytest

from t2t_keras.data.prepare import PreparedData
from tests import programs

pytestmark = pytest.mark.integration


ENGLISH = [f"Room {n} has {n % 7} doors and {n % 5} windows." for n in range(200)]
GERMAN = [f"Raum {n} hat {n % 7} Türen und {n % 5} Fenster." for n in range(200)]


@pytest.fixture
def files(tmp_path):
    for name, lines in (("a.en", ENGLISH), ("a.de", GERMAN)):
        (tmp_path / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    return tmp_path


def run(*arguments, **more):
    """Returns the exit status, standard output and standard error."""
    command = ["-m", "launch.prepare_data", *map(str, arguments)]
    result = programs.run(command, capture_output=True, text=True, check=False, cwd=os.getcwd(), **more)
    return result.returncode, result.stdout, result.stderr


def flags_for(folder, **changes):
    values = {
        "train_source": folder / "a.en",
        "train_target": folder / "a.de",
        "vocab_size": 330,
        "data_dir": folder / "data",
    }
    return [f"--{name}={value}" for name, value in {**values, **changes}.items()]


def test_preparation_and_repeated_preparation(files):
    status, output, errors = run(*flags_for(files, lowercase="both", final_marks=True))
    assert (status, errors) == (0, "")
    assert re.search(r"^ +train +valid$", output, re.MULTILINE)
    assert re.search(r"^pairs read +200 +\d+$", output, re.MULTILINE)
    prepared = PreparedData.open(files / "data")
    assert re.search(r"^final marks changed +0 +-$", output, re.MULTILINE)
    assert re.search(rf"^pairs kept +{len(prepared.split('train'))} +2$", output, re.MULTILINE)
    assert prepared.config.lowercase == "both" and prepared.config.vocab_size == prepared.tokenizer.vocab_size == 330
    status, repeated, errors = run(*flags_for(files, lowercase="both", final_marks=True))
    assert (status, errors) == (0, "")
    assert repeated.splitlines() == [
        f"{files / 'data'}: already prepared",
        *output.splitlines()[-len(repeated.splitlines()) + 1 :],
    ]


def test_vocabulary_of_other_prepared_data(files):
    assert run(*flags_for(files, lowercase="both", final_marks=True))[0] == 0
    text = [f"--train_source={files / 'a.de'}", f"--train_target={files / 'a.en'}", f"--data_dir={files / 'reverse'}"]
    status, _, errors = run(*text, f"--vocab_from={files}")
    assert (status, errors.startswith(f"error: --vocab_from={files}: no run, export or prepared data: ")) == (1, True)
    status, _, errors = run(*text, f"--vocab_from={files / 'data'}")
    assert (status, errors) == (0, "")
    first, second = (PreparedData.open(files / name) for name in ("data", "reverse"))
    assert second.vocab_path.read_bytes() == first.vocab_path.read_bytes()
    assert second.config.lowercase == "both" and second.config.final_marks
    text[2] = f"--data_dir={files / 'unmarked'}"
    status, _, errors = run(*text, f"--vocab_from={files / 'data'}", "--nofinal_marks")
    assert (status, errors, PreparedData.open(files / "unmarked").config.final_marks) == (0, "", False)


TOO_FEW = "error: --train_target: expected 2 values, one per corpus, got 1\n"


def test_several_corpora_with_tags(files):
    valid = [f"--valid_source={files / 'short'}", f"--valid_target={files / 'short'}"]  # of the first corpus
    (files / "short").write_text("nur eine\n")
    both = [*flags_for(files, vocab_size=350, data_dir=files / "both"), *valid, "--tag=", "--tag=<2en>"]
    both.append(f"--train_source={files / 'a.de'}")
    status, _, errors = run(*both)
    assert (status, errors) == (1, TOO_FEW)
    status, _, errors = run(*both, f"--train_target={files / 'a.en'}")
    assert (status, errors) == (0, "")
    prepared = PreparedData.open(files / "both")
    assert prepared.text("valid")[0] == ["nur eine"]
    sources = prepared.tokenizer.decode_batch(prepared.split("train").source_ids(range(sum(prepared.part_sizes))))
    assert [line.startswith("<2en> Raum") for line in sources] == [
        *[False] * prepared.part_sizes[0],
        *[True] * prepared.part_sizes[1],
    ]


def test_files_with_both_sides(files):
    """Each split has its own format, and languages are read from the file."""
    units = "".join(
        f'<tu><tuv xml:lang="en-US"><seg>{source}</seg></tuv><tuv xml:lang="de-DE"><seg>{target}</seg></tuv></tu>'
        for source, target in zip(ENGLISH, GERMAN, strict=True)
    )
    (files / "memory.tmx").write_text(f"<tmx><body>{units}</body></tmx>", encoding="utf-8")
    flags = {"train_source": files / "memory.tmx", "vocab_size": 330, "data_dir": files / "data"}
    flags |= {"source_language": "de", "target_language": "en"}
    for name, line in (("v.de", "nur eine"), ("v.en", "only one")):
        (files / name).write_text(f"{line}\n")
    flags |= {"valid_source": files / "v.de", "valid_target": files / "v.en"}
    status, _, errors = run(*(f"--{name}={value}" for name, value in flags.items()))
    assert (status, errors) == (0, "")
    prepared = PreparedData.open(files / "data")
    assert prepared.counts["train"]["read"] == 200
    assert prepared.text("valid") == (["nur eine"], ["only one"])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"vocab_type": "byte", "vocab_size": 200}, "vocab_size=200 is too small; the smallest valid size is 260"),
        ({"vocab_type": "char", "vocab_size": 259}, r"vocab_size=259 is too small; the smallest valid size is \d+"),
        ({"vocab_size": -1}, "--vocab_size must be a whole number of at least 1, got -1"),
        ({"train_target": "{}/short"}, r"unequal numbers of lines: .*a\.en has 200, .*short has 1;"),
        (
            {"valid_source": "{}/a.en"},
            "give both --valid_source and --valid_target, or only --valid_source with a file that has both sides",
        ),
        ({"tsv": True}, "with --tsv, give only --train_source"),
        ({"tag": "<2DE>", "lowercase": "both"}, "--lowercase: the symbol <2DE> would no longer occur in the text"),
        ({"vocab_from": "{}"}, "--vocab_size is determined by --vocab_from"),
        ({"beam_pipeline_options": "direct_num_workers=4"}, "--beam_pipeline_options requires --beam_runner"),
        ({"data_dir": "{}/a.en"}, r"--data_dir=.*a\.en is a file; give a folder"),
        (
            {"valid_source": "{}/data/valid.source.txt", "valid_target": "{}/a.de"},
            r".*data/valid\.source\.txt: the preparation",
        ),
    ],
)
def test_errors(files, changes, message):
    (files / "short").write_text("nur eine\n")
    (files / "data").mkdir()
    (files / "data" / "valid.source.txt").write_text("one\n")
    status, _, errors = run(*flags_for(files, **{name: str(value).format(files) for name, value in changes.items()}))
    assert status == 1
    assert re.fullmatch(f"error: {message}.*\n", errors)


def limit_files():
    resource.setrlimit(resource.RLIMIT_FSIZE, (3000, 3000))


def test_full_disk(files):
    status, _, errors = run(*flags_for(files), preexec_fn=limit_files)
    assert status == 1
    # On a busy machine, gRPC (imported by TensorFlow) may log an interrupted wait.
    (line,) = (line for line in errors.splitlines() if "(event_engine)" not in line)
    assert re.fullmatch(r"error: .*File too large: '.*txt'", line)
    assert [path.name for path in (files / "data").iterdir() if path.name == "data.json" or "tmp" in path.name] == []
    assert run(*flags_for(files))[0] == 0
    assert len(PreparedData.open(files / "data").split("train")) > 150
