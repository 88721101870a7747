"""Translates text: one line of output for each line of input, in order.

A line of several sentences is translated sentence by sentence if the model was trained on single sentences (see
--split). The program reads standard input unless --input is given; on a terminal, it prompts for lines. With
--json_input, each line is an object with "text" and optionally "prefix", "constraints", "excluded" and "id".

Examples:
    python -m launch.translate --model_dir=runs/mine < in.txt > out.txt
    python -m launch.translate --model_dir=runs/mine --input=in.txt.gz --output=out.txt --beam_size=1
    python -m launch.translate --model_dir=runs/mine --split=lines < in.txt > out.txt
    python -m launch.translate --model_dir=runs/mine --target_language=fr < in.txt > out.txt
    python -m launch.translate --model_dir=runs/mine --glossary=terms.tsv < in.txt > out.txt
    python -m launch.translate --model_dir=runs/mine --markup=html < page.en.html > page.de.html
    python -m launch.translate --model_dir=runs/mine --input=messages.po --output=translated.po
    python -m launch.translate --model_dir=runs/mine --json_input --json --num_best=4 --alignments < in.jsonl
"""

import contextlib
import itertools
import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, get_args

import tqdm
from absl import flags

from t2t_keras.data.sources.corpora_files import decoded_line, read_lines, read_raw_lines, without_byte_order_mark
from t2t_keras.errors import InputError, explained
from t2t_keras.inference import json_lines
from t2t_keras.inference.translation import Translation
from t2t_keras.localization.formats import Options, TranslatableFile, format_suffix
from t2t_keras.text.markup.documents import Markup
from t2t_keras.text.terms import Glossary
from t2t_keras.values import PositiveInt

from . import program, remote_paths
from .flag_groups import decoding_flags, file_flags, setting_flags, split_flags
from .flag_types import FILE, NEW_FILE, DEFINE_number, DEFINE_path
from .marked_input import write_marked
from .term_report import TermReport
from .translated_file import translated

if TYPE_CHECKING:
    from t2t_keras.inference.translator import Translator

_INPUT = DEFINE_path(
    "input", None, "UTF-8 text, also .gz .bz2 .xz, or a file such as .po or .md; default: standard input.", FILE
)
_OUTPUT = DEFINE_path("output", None, "File for the translations; default: standard output.", NEW_FILE)
_JSON_INPUT = flags.DEFINE_bool("json_input", False, "Whether the lines of input are JSON objects.")
_JSON = flags.DEFINE_bool("json", False, "Whether to write JSON objects, with scores.")
_NUM_BEST = DEFINE_number(
    "num_best", 1, "Translations per line; above 1, output lines are 'NUMBER ||| TEXT ||| SCORE', from 0.", PositiveInt
)
_TOKEN_SCORES = flags.DEFINE_bool("token_scores", False, "With --json: add all tokens and their log-probabilities.")
_ALIGNMENTS = flags.DEFINE_bool("alignments", False, "With --json: add the word alignment, such as 0-0 1-2.")
_ON_ERROR = flags.DEFINE_enum(
    "on_error",
    "stop",
    ["stop", "skip"],
    "The action for a line that cannot be translated; skip: write an empty line, or no line with --num_best above "
    "1, or an object with an 'error' with --json.",
)
_GLOSSARY = DEFINE_path(
    "glossary",
    None,
    "File of lines 'term TAB form|form|...': if a source contains the term, its translation contains one of the forms.",
    FILE,
)
_MARKUP = flags.DEFINE_enum(
    "markup",
    None,
    get_args(Markup),
    "Markup in the input, which is kept; html, xml: the input is one document; placeholders: such as {name} or %s.",
)
_TARGET_LANGUAGE = flags.DEFINE_string(
    "target_language", None, "The target language of a model with several; fr is the same as --tag='<2fr>'."
)
_MARKUP_ATTRIBUTES = flags.DEFINE_list(
    "markup_attributes", [], "With --markup=html or xml: attributes to translate, such as alt,title."
)
_CHUNK_LINES = DEFINE_number(
    "chunk_lines", 5000, "Lines that are read, sorted by length and translated together; 1: one by one.", PositiveInt
)
flags.adopt_module_key_flags(decoding_flags)
flags.adopt_module_key_flags(split_flags)
flags.adopt_module_key_flags(file_flags)
flags.mark_flag_as_required("model_dir")
program.REMOTE |= {"model_dir": remote_paths.model, "ensemble": remote_paths.member}


def main(argv: list[str]) -> None:
    """Translates the input that the flags name."""
    for name, flag in (("token_scores", _TOKEN_SCORES), ("alignments", _ALIGNMENTS)):
        if flag.value and not _JSON.value:
            raise InputError(f"--{name} requires --json")
    if _MARKUP_ATTRIBUTES.value and _MARKUP.value not in ("html", "xml"):
        raise InputError("--markup_attributes requires --markup=html or --markup=xml")
    if _TARGET_LANGUAGE.value and flags.FLAGS["tag"].present:
        raise InputError("--target_language cannot be combined with --tag")
    suffix = None if _MARKUP.value in ("html", "xml") or _JSON_INPUT.value else file_flags.input_suffix(_INPUT.value)
    file_flags.check_used(suffix, bool(_INPUT.value), _OUTPUT.value is not None)
    program.refuse_replacing(_OUTPUT.value, _INPUT.value or "/dev/stdin", _GLOSSARY.value)
    if suffix:
        _translate_file(suffix)
        return
    if _MARKUP.value:
        _translate_marked()
        return
    is_typed = _INPUT.value is None and sys.stdin.isatty()
    if is_typed and _OUTPUT.value is None and sys.stdout.isatty():
        _converse(_load_translator())
        return
    lines = _raw_lines()
    report = TermReport(_INPUT.value or "standard input")
    with program.output(_OUTPUT.value) as output:
        translator = _load_translator()
        num_long, num_cut = _translate(translator, lines, output, report)
    if num_long:
        program.warn(f"warning: {decoding_flags.report_of_long(num_long)}")
    decoding_flags.warn_of_cut(num_cut, translator.config)
    if _GLOSSARY.value:
        report.print()


def _refuse_options_of_lines(subject: str) -> None:
    """Refuses flags that apply only to lines of text, with a message that names a format or a flag."""
    formats = {"json": _JSON, "json_input": _JSON_INPUT}
    names = [name for name, flag in formats.items() if flag.value] + (["num_best"] if _NUM_BEST.value > 1 else [])
    if names or _ON_ERROR.value == "skip":
        raise InputError(f"{subject} cannot be combined with --{(names or ['on_error=skip'])[0]}")


def _translate_file(suffix: str) -> None:
    """Translates a file of units; the output is in the same format."""
    name = _INPUT.value or "standard input"
    _refuse_options_of_lines(f"{suffix} files")
    if _OUTPUT.value and format_suffix(_OUTPUT.value) not in (suffix, None):
        raise InputError(f"--output={_OUTPUT.value}: the output has the format of the input, {suffix}")
    if _INPUT.value is None:
        content = sys.stdin.buffer.read()
    else:
        with explained(f"{name}: cannot be read"):
            content = Path(_INPUT.value).read_bytes()
    target = _INPUT.value if file_flags.IN_PLACE.value else _OUTPUT.value
    with program.output(target) as output:
        translator = _load_translator()
        languages = translator.data.source_language, translator.data.target_language
        options = Options(*languages, file_flags.COLUMN.value, file_flags.TARGET_COLUMN.value)
        file = TranslatableFile(content, name, suffix, options, all_units=file_flags.ALL.value)
        translation, num_cut = translated(translator, file, name, _CHUNK_LINES.value)
        output.write(translation)
    decoding_flags.warn_of_cut(num_cut, translator.config)


def _translate_marked() -> None:
    _refuse_options_of_lines("--markup")
    lines = _raw_lines()
    with program.output(_OUTPUT.value) as output:
        translator = _load_translator()
        name = _INPUT.value or "standard input"
        options = _MARKUP.value, name, _CHUNK_LINES.value, _MARKUP_ATTRIBUTES.value
        num_cut = write_marked(translator, lines, output, *options)
    decoding_flags.warn_of_cut(num_cut, translator.config)


def _raw_lines() -> Iterator[bytes]:
    """Returns the lines of the input; refuses an unreadable file before anything is loaded."""
    if _INPUT.value is None:  # not read beyond its end, which a user of a terminal would have to type again
        return iter(sys.stdin.buffer.readline, b"")
    lines = read_raw_lines(_INPUT.value)
    return itertools.chain(list(itertools.islice(lines, 1)), lines)


def _load_translator() -> "Translator":
    """Loads the translator of the flags; refuses a beam smaller than --num_best."""
    name = _GLOSSARY.value
    glossary = Glossary.parsed(read_lines(name), name) if name else None
    settings = setting_flags.values(split_flags.SETTINGS)
    if _TARGET_LANGUAGE.value:
        settings["tag"] = f"<2{_TARGET_LANGUAGE.value}>"
    translator = decoding_flags.load_translator(glossary, **settings)
    if _NUM_BEST.value > translator.config.beam_size:
        raise InputError(f"--num_best={_NUM_BEST.value} is more than --beam_size={translator.config.beam_size}")
    if _ALIGNMENTS.value:
        translator.align_tokens([], [])  # raises before any search
    return translator


def _translate(
    translator: "Translator", raw_lines: Iterable[bytes], output: IO[bytes], report: TermReport
) -> tuple[int, int]:
    """Writes all translations; returns the number of lines that were too long, and the number of outputs cut."""
    num_long = num_cut = 0
    scored = _JSON.value or _NUM_BEST.value > 1
    remaining = enumerate(raw_lines, start=1)
    with tqdm.tqdm(unit=" lines", disable=not sys.stderr.isatty() or output.isatty()) as progress:
        while chunk := list(itertools.islice(remaining, _CHUNK_LINES.value)):
            lines = [_check(translator, _line(number, raw)) for number, raw in chunk]
            if _ON_ERROR.value == "stop":
                _stop_at_error(lines)
            valid_lines = [line for line in lines if not line.error]
            update = _updater(progress, progress.n, len(chunk))
            requests = [line.request for line in valid_lines]
            nbest_lists = translator.translate_nbest(requests, _NUM_BEST.value, update, scored=scored)
            num_long += sum(best.is_overlong for best, *_ in nbest_lists)
            num_cut += sum(translation.is_cut for nbest in nbest_lists for translation in nbest)
            results = dict(zip((line.number for line in valid_lines), nbest_lists, strict=True))
            lines = [_check_translation(line, results) for line in lines]
            if _ON_ERROR.value == "stop":
                _stop_at_error(lines)
            for line in (line for line in lines if not line.error):
                report.add(line.number, results[line.number][0])
            output.write(_output_text(translator, lines, results).encode("utf-8"))
            output.flush()
    return num_long, num_cut


def _line(number: int, raw: bytes) -> json_lines.Line:
    try:
        text = decoded_line(without_byte_order_mark(raw) if number == 1 else raw)
    except InputError as error:
        return json_lines.Line(number, "", None, str(error))
    return json_lines.parsed(number, text) if _JSON_INPUT.value else json_lines.Line(number, text)


def _check(translator: "Translator", line: json_lines.Line) -> json_lines.Line:
    """Returns the line, with an error if its request cannot be met."""
    if line.error:
        return line
    try:
        translator.check(line.request)
    except InputError as error:
        return line._replace(error=str(error))
    return line


def _check_translation(line: json_lines.Line, results: dict[int, list[Translation]]) -> json_lines.Line:
    """Returns the line, with an error if its search found no translation."""
    if line.error or results[line.number][0].exists:
        return line
    return line._replace(error="no translation meets all requirements")


def _stop_at_error(lines: list[json_lines.Line]) -> None:
    for line in lines:
        if line.error:
            raise InputError(f"{_INPUT.value or 'standard input'}, line {line.number}: {line.error}")


def _output_text(translator: "Translator", lines: list[json_lines.Line], results: dict[int, list[Translation]]) -> str:
    for line in lines:
        if line.error and not _JSON.value:
            program.warn(f"warning: {_INPUT.value or 'standard input'}, line {line.number}: {line.error}")
    if _JSON.value:
        return _json_text(translator, lines, results)
    if _NUM_BEST.value == 1:
        return "".join(("" if line.error else results[line.number][0].line) + "\n" for line in lines)
    return "".join(
        f"{line.number - 1} ||| {translation.line} ||| {translation.score:.6f}\n"
        for line in lines
        if not line.error
        for translation in results[line.number]
    )


def _json_text(translator: "Translator", lines: list[json_lines.Line], results: dict[int, list[Translation]]) -> str:
    valid_results = [results[line.number] for line in lines if not line.error]
    options = (_TOKEN_SCORES.value, _ALIGNMENTS.value, _NUM_BEST.value > 1)
    answers = iter(json_lines.answers(translator, valid_results, *options))
    rows = []
    for line in lines:
        row = {} if line.id is None else {"id": line.id}
        row.update({"error": line.error} if line.error else next(answers))
        text = json.dumps(row, ensure_ascii=False)
        # An id may contain half of a surrogate pair, which is written as an ASCII escape.
        rows.append(text.encode("utf-8", "backslashreplace").decode("utf-8") + "\n")
    return "".join(rows)


def _updater(progress: tqdm.tqdm, offset: int, lines: int):
    """Returns a function that updates a progress bar of lines when parts of a chunk are done."""

    def update(done: int, total: int) -> None:
        progress.update(offset + lines * done // total - progress.n)

    return update


def _converse(translator: "Translator") -> None:
    """Prompts for lines and translates them, until the input ends."""
    # This traces the graph or converts the model before the first prompt.
    with contextlib.suppress(InputError):  # a model of several directions without --target_language
        translator.translate([f"{translator.task.context or ''}."])
    program.warn("Type one line at a time; Ctrl-D ends the program.")
    for number in itertools.count(1):
        try:
            text = input("> ")
        except EOFError:
            print(file=sys.stderr)
            return
        except UnicodeDecodeError as error:
            program.warn(f"not valid UTF-8: {error.reason}")
            continue
        line = _check(translator, _line(number, text.encode("utf-8", "surrogateescape")))
        results = {} if line.error else {number: translator.translate_nbest([line.request], _NUM_BEST.value)[0]}
        line = _check_translation(line, results)
        if line.error:
            program.warn(line.error)
            continue
        TermReport("standard input").add(number, results[number][0])
        print(_output_text(translator, [line], results), end="", flush=True)


run = program.command(main)
