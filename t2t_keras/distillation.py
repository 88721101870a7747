"""Makes training text in which a teacher's translations replace one side of parallel text.

Translations of the sources give the text of sequence-level distillation (Kim and Rush 2016, "Sequence-Level Knowledge
Distillation"). Translations of the targets give back-translated text (Sennrich et al. 2016, "Improving Neural Machine
Translation Models with Monolingual Data"). Data diversification (Nguyen et al. 2020, "Data Diversification: A Simple
Strategy For Neural Machine Translation") trains on the original text and on both kinds of translations.

The text is translated in chunks. The outputs grow under temporary names, and `progress.json`, in a folder next to the
output of the targets, records how many bytes of them are complete. After an interruption at any point, the outputs are
truncated to this size. The chunks begin at the same lines as in an uninterrupted run, so the batches are the same too.
"""

import contextlib
import dataclasses
import itertools
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal

from t2t_keras.data.checksums import changes, checksums
from t2t_keras.data.cleaning import Pair
from t2t_keras.data.readers import read_lines
from t2t_keras.data.sources.corpora_files import check_readable, is_compressed, paired
from t2t_keras.errors import InputError, explained
from t2t_keras.inference.translation import Translation
from t2t_keras.machine.files import read_json, write_json
from t2t_keras.machine.locking import locked
from t2t_keras.text.languages import language_of

if TYPE_CHECKING:
    from t2t_keras.inference.translator import Translator

Direction = Literal["forward", "back"]
Choice = Literal["best", "nearest"]

# Number of pairs that are translated together: enough for many cores. An interruption may lose that many.
CHUNK_LINES = 5000

# Number of reference lines from which the language is detected if it is Chinese, Japanese or Korean.
_LINES_OF_LANGUAGE = 1000


@dataclasses.dataclass(frozen=True)
class Distillation:
    """The text to translate, and the choice of the translations.

    Attributes:
        source: path of the sources, which may be compressed (.gz, .bz2, .xz).
        target: path of the targets, one for each line of `source`.
        output_source: file for the sources of the new pairs.
        output_target: file for the targets of the new pairs.
        direction: "forward" translates the sources, and keeps them; "back" translates the targets, and keeps them.
        choose: "best" takes the hypothesis with the best score; "nearest" takes, of `num_best` hypotheses, the one
            with the highest sentence BLEU against the side that the translation replaces.
        num_best: number of hypotheses that "nearest" compares; 1 for "best".
        language: code of the language of the translations.
        teachers: files with the weights of the teachers.
        settings: all other settings of the search, as JSON values.
    """

    source: Path
    target: Path
    output_source: Path
    output_target: Path
    direction: Direction
    choose: Choice
    num_best: int
    language: str
    teachers: Sequence[Path]
    settings: Mapping[str, Any]

    @property
    def outputs(self) -> tuple[Path, Path]:
        """The files for the sources and the targets of the new pairs."""
        return self.output_source, self.output_target

    @property
    def folder(self) -> Path:
        """The folder that records the progress."""
        return self.output_target.with_name(f"{self.output_target.name}.distil")

    @property
    def references(self) -> Path:
        """The file of the side that the translations replace."""
        return self.target if self.direction == "forward" else self.source


def distil(
    job: Distillation,
    load_teacher: Callable[[], "Translator"],
    report: Callable[[str], None] = print,
    on_progress: Callable[[int, int], None] = lambda done, pairs: None,
) -> int:
    """Translates the text, or resumes after an interruption; does nothing if the outputs are complete.

    A blank line has a blank translation. The translation of a line is also blank if the search finds none.

    Args:
        job: the text and the choice.
        load_teacher: loads the teachers as a translator, whose settings are those of `job`.
        report: called with a line of text if a previous call translated some or all of the text.
        on_progress: called at the start and after each chunk with the number of pairs done and the total.

    Returns:
        The number of translations that were cut at the length limit.

    Raises:
        InputError: a text cannot be read, the texts have different numbers of lines, the outputs were started
            with different texts, teachers or settings, were changed or removed, or another process is writing them.
        OSError: an output cannot be written.
    """
    _check_files(job)
    with locked(job.folder, verb="distil", participle="distilled", flag="--output_target"):
        progress = _Progress.start(job)
        if progress.lines == progress.pairs:
            _publish(job, progress)
            report(f"{job.output_target}: already distilled")
            return progress.num_cut
        if progress.lines:
            report(f"{job.output_target}: resuming after {progress.lines:,} of {progress.pairs:,} pairs")
        on_progress(progress.lines, progress.pairs)
        for _ in _chunks(job, progress, load_teacher):
            on_progress(progress.lines, progress.pairs)
        _publish(job, progress)
    return progress.num_cut


def nearest(
    nbest_lists: Sequence[Sequence[Translation]], references: Sequence[str], language: str
) -> list[Translation]:
    """Chooses from each list of hypotheses the one with the highest sentence BLEU; of equal ones, the best score.

    Args:
        nbest_lists: at least one hypothesis for each line.
        references: one for each line.
        language: language code, which selects the tokeniser of BLEU.

    Raises:
        InputError: there are no lines, or the tokeniser of the language is not installed.

    Reference: Kim and Rush 2016, section 3.3 (sequence-level interpolation).
    """
    from t2t_keras.tasks.translation_scores import sentence_bleu

    rows = [(each.line, line) for nbest, line in zip(nbest_lists, references, strict=True) for each in nbest]
    hypotheses, reference_copies = zip(*rows, strict=True)
    scores = iter(sentence_bleu(hypotheses, reference_copies, language))
    candidates = [[(next(scores), each.score, each) for each in nbest] for nbest in nbest_lists]
    return [max(row, key=lambda item: item[:2])[2] for row in candidates]


@dataclasses.dataclass
class _Progress:
    """The contents of `progress.json`.

    Attributes:
        settings: everything that decides the outputs, by name; files by their checksums.
        pairs: number of pairs of the text.
        lines: number of pairs done.
        num_cut: number of translations so far that were cut at the length limit.
        sizes: bytes of the two outputs so far.
    """

    settings: dict[str, Any]
    pairs: int
    lines: int = 0
    num_cut: int = 0
    sizes: Sequence[int] = (0, 0)

    @classmethod
    def start(cls, job: Distillation) -> "_Progress":
        """Reads the record of a previous call, or writes a new one; raises an InputError if the settings differ."""
        teachers = {f"teacher_{number}": path for number, path in enumerate(job.teachers, 1)}
        files = {"source": job.source, "target": job.target, **teachers}
        choice = {"direction": job.direction, "choose": job.choose, "num_best": job.num_best}
        settings = {**job.settings, **choice, **checksums(files, job.folder / ".checksums.json")}
        settings = json.loads(json.dumps(settings))  # with lists instead of tuples, as in the record
        previous = read_json(cls._path(job), lambda values: cls(**values), f"; remove {job.folder} to start over")
        if previous is None:
            progress = cls(settings, sum(1 for _ in _pairs(job)))
            progress.write(job)
            return progress
        if entries := changes(previous.settings, settings):
            raise InputError(
                f"{job.output_target} was started with different settings ({', '.join(entries)}); give a different "
                f"--output_target, or remove {job.folder} to start over"
            )
        return previous

    @staticmethod
    def _path(job: Distillation) -> Path:
        return job.folder / "progress.json"

    def write(self, job: Distillation) -> None:
        write_json(self._path(job), dataclasses.asdict(self))


def _pairs(job: Distillation) -> Iterator[Pair]:
    """Yields the pairs of the text."""
    return paired(read_lines(job.source), read_lines(job.target), job.source, job.target)


def _check_files(job: Distillation) -> None:
    """Raises an InputError for texts that cannot be read twice, and for invalid names of outputs."""
    for path in (job.source, job.target):
        check_readable(path)
    if job.output_source.resolve() == job.output_target.resolve():
        raise InputError(f"--output_source and --output_target are the same file, {job.output_target}")
    for path in job.outputs:
        if is_compressed(path):
            raise InputError(f"{path}: outputs are not compressed; give a name without {path.suffix}")


def _chunks(job: Distillation, progress: _Progress, load_teacher: Callable[[], "Translator"]) -> Iterator[None]:
    """Translates the rest of the text, and yields after each chunk, once its record is written."""
    language = language_of(itertools.islice(read_lines(job.references), _LINES_OF_LANGUAGE), job.language)
    if job.choose == "nearest":
        from t2t_keras.tasks.translation_scores import check_language  # sacreBLEU takes a while to import

        check_language(language)
    pairs = itertools.islice(_pairs(job), progress.lines, None)
    with contextlib.ExitStack() as stack:
        files = [
            stack.enter_context(_reopen(path, size, job))
            for path, size in zip(job.outputs, progress.sizes, strict=True)
        ]
        teacher = load_teacher()
        while chunk := list(itertools.islice(pairs, CHUNK_LINES)):
            translations = _translations(job, teacher, chunk, language)
            for file, lines in zip(files, _new_pairs(job, chunk, translations), strict=True):
                _append(file, lines)
            progress.lines += len(chunk)
            progress.num_cut += sum(translation.is_cut for translation in translations)
            progress.sizes = [file.tell() for file in files]
            progress.write(job)
            yield


def _translations(job: Distillation, teacher: "Translator", chunk: Sequence[Pair], language: str) -> list[Translation]:
    """Returns the chosen translation of each pair."""
    texts, references = zip(*(pair if job.direction == "forward" else pair[::-1] for pair in chunk), strict=True)
    if job.choose == "best":
        return teacher.translate(texts, scored=False)
    return nearest(teacher.translate_nbest(texts, job.num_best), references, language)


def _new_pairs(
    job: Distillation, chunk: Sequence[Pair], translations: Sequence[Translation]
) -> tuple[list[str], list[str]]:
    """Returns the sources and the targets to write."""
    lines = [translation.line for translation in translations]
    if job.direction == "forward":
        return [source for source, _ in chunk], lines
    return lines, [target for _, target in chunk]


def _part(path: Path) -> Path:
    """Returns the name of an output while it is incomplete."""
    return path.with_name(f"{path.name}.part")


@contextlib.contextmanager
def _reopen(path: Path, size: int, job: Distillation) -> Iterator[IO[bytes]]:
    """Opens an incomplete output, truncated to its first `size` bytes."""
    part = _part(path)
    with open(part, "ab") as file:
        if file.tell() < size:
            raise InputError(
                f"{part} has {file.tell():,} bytes instead of the {size:,} recorded in {job.folder}; give the same "
                f"--output_source and --output_target as before, or remove {job.folder} to start over"
            )
        file.truncate(size)
        yield file


def _append(file: IO[bytes], lines: Iterable[str]) -> None:
    with explained(f"{file.name}: cannot be written"):
        file.write("".join(f"{line}\n" for line in lines).encode("utf-8"))
        file.flush()
        os.fsync(file.fileno())


def _publish(job: Distillation, progress: _Progress) -> None:
    """Gives the complete outputs their final names; raises an InputError if one was changed or removed."""
    for path, size in zip(job.outputs, progress.sizes, strict=True):
        if _part(path).exists():
            _part(path).replace(path)
        if not path.is_file() or path.stat().st_size != size:
            raise InputError(
                f"{path} is not the output of {size:,} bytes recorded in {job.folder}; remove that folder to start over"
            )
