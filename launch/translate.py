"""Translates text, a line of output for each line of input, in order.

Reads standard input unless --input is given; on a terminal it asks for lines.

Examples:
    python -m launch.translate --model_dir=runs/mine < in.txt > out.txt
    python -m launch.translate --model_dir=runs/mine --input=in.txt.gz --output=out.txt --beam_size=1
"""

import contextlib
import sys
from collections.abc import Iterator
from typing import IO

from . import program, quiet_tensorflow  # noqa: F401  isort: skip  (before anything imports TensorFlow)

import tqdm
from absl import flags

from t2t_keras.data.corpora_files import read_lines
from t2t_keras.data.writing import replacing
from t2t_keras.decoding.translator import Translator
from t2t_keras.errors import InputError

from . import decoding_flags

_INPUT = flags.DEFINE_string("input", None, "UTF-8 text, also .gz .bz2 .xz; default: standard input.")
_OUTPUT = flags.DEFINE_string("output", None, "File for the translations; default: standard output.")
_CHUNK_LINES = flags.DEFINE_integer(
    "chunk_lines", 5000, "Lines read, sorted by length and translated at a time; 1 answers each at once.", lower_bound=1
)
flags.adopt_module_key_flags(decoding_flags)


def main(argv: list[str]) -> None:
    """Translates what the flags say."""
    del argv  # every setting is a flag
    if _INPUT.value is None and sys.stdin.isatty():
        _converse(decoding_flags.load_translator())
        return
    lines = _standard_input() if _INPUT.value is None else read_lines(_INPUT.value)
    with _open_output() as output:
        num_long = _translate(decoding_flags.load_translator(), lines, output)
    if num_long:
        print(f"warning: {num_long} lines were too long for one piece and were translated in parts", file=sys.stderr)


def _translate(translator: Translator, lines: Iterator[str], output: IO[bytes]) -> int:
    """Writes all translations and gives the number of lines that were too long for one piece."""
    num_long = 0
    progress = tqdm.tqdm(unit=" lines", disable=not sys.stderr.isatty() or output.isatty())
    with progress:
        for translation in translator.translate_stream(lines, _CHUNK_LINES.value):
            output.write(translation.text.encode("utf-8") + b"\n")
            num_long += translation.num_parts > 1
            progress.update()
            if progress.n % _CHUNK_LINES.value == 0:
                output.flush()
    return num_long


def _standard_input() -> Iterator[str]:
    """The lines of standard input, which only "\\n" and "\\r\\n" end."""
    for number, line in enumerate(sys.stdin.buffer, start=1):
        try:
            yield line.removesuffix(b"\n").removesuffix(b"\r").decode("utf-8")
        except UnicodeDecodeError as error:
            raise InputError(
                f"standard input, line {number}: not valid UTF-8 (byte {error.start + 1}: {error.reason})"
            ) from error


@contextlib.contextmanager
def _open_output() -> Iterator[IO[bytes]]:
    """The file, which takes its name once it is complete, or standard output."""
    if _OUTPUT.value is not None:
        with replacing(_OUTPUT.value, "wb") as file:
            yield file
    else:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()


def _converse(translator: Translator) -> None:
    """Asks for lines until there are no more."""
    translator.translate(["."])  # traces the graph before the first answer is waited for
    print("One line of text at a time; Ctrl-D ends.", file=sys.stderr)
    while True:
        try:
            line = input("> ")
        except EOFError:
            print(file=sys.stderr)
            return
        except UnicodeDecodeError as error:
            print(f"not valid UTF-8: {error.reason}", file=sys.stderr)
            continue
        print(translator.translate([line])[0].text, flush=True)


def run() -> None:
    """The console entry point."""
    program.run(main)


if __name__ == "__main__":
    run()
