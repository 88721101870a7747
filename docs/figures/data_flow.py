"""The inputs and outputs of the programs, from text files to a server."""

from drawing import Drawing

_COLUMNS = 20, 285, 550  # left sides of boxes
_WIDTH = 250


def data_flow() -> str:
    """Returns a figure with programs in colour, and files and folders in white, from top to bottom."""
    drawing = Drawing(820, 700, "From files of text through preparing, training and exporting to a server")
    left, middle, right = _COLUMNS
    centers = [column + _WIDTH / 2 for column in _COLUMNS]
    drawing.text(20, 18, "Coloured: programs. White: what they read and write.", "left", "small", "quiet")
    drawing.box(middle, 34, _WIDTH, 56, "two text files, a .tsv,", "or a corpus by its name")
    _program(drawing, middle, 122, "prepare_data", "cleans, makes a vocabulary, encodes")
    _folder(drawing, middle, 206, "--data_dir=data/mine", "data.json  vocab.model", "train.*.npy  valid.*  test.*")
    _program(drawing, middle, 312, "train", "one global batch on any devices")
    _folder(drawing, middle, 396, "--model_dir=runs/mine", "config.json  vocab.model", "checkpoints/  metrics.jsonl")
    for lower, upper in ((90, 122), (166, 206), (276, 312), (356, 396)):
        drawing.arrow((centers[1], lower), (centers[1], upper))
    _loops(drawing)
    for column, name, words in (
        (left, "translate", "lines of text, at once"),
        (middle, "export", "text in, text out"),
        (right, "evaluate", "the test set, by sacreBLEU"),
    ):
        _program(drawing, column, 506, name, words)
    for center in centers:
        drawing.arrow((centers[1], 466), (centers[1], 484), (center, 484), (center, 506))
        drawing.arrow((center, 550), (center, 580))
    drawing.box(left, 580, _WIDTH, 40, "translations")
    drawing.box(middle, 580, _WIDTH, 40, "SavedModel: saved_models/mine")
    drawing.box(right, 580, _WIDTH, 40, "scores and translations")
    drawing.arrow((centers[1], 620), (centers[1], 644))
    _program(drawing, middle, 644, "serve", "REST, gRPC and a page")
    drawing.arrow((middle + _WIDTH, 600), (right - 8, 600), (right - 8, 666), (right, 666))
    drawing.box(right, 644, _WIDTH, 44, "TensorFlow Serving,", "your own program")
    return drawing.svg()


def _program(drawing: Drawing, left: float, top: float, name: str, words: str) -> None:
    drawing.box(left, top, _WIDTH, 44, f"`launch.{name}`", words, kind="network", link=f"launch/{name}.py")


def _folder(drawing: Drawing, left: float, top: float, *lines: str) -> None:
    drawing.box(left, top, _WIDTH, 70, *(f"`{line}`" for line in lines))


def _loops(drawing: Drawing) -> None:
    """Draws the data that a run's folder passes back to it, and the programs that perform all steps."""
    left, middle, right = _COLUMNS
    _program(drawing, right, 409, "average_checkpoints", "the mean of the last ones")
    drawing.arrow((middle + _WIDTH, 420), (right, 420))
    drawing.arrow((right, 442), (middle + _WIDTH, 442))
    _program(drawing, left, 409, "convert", "models of other projects")
    drawing.arrow((left + _WIDTH, 431), (middle, 431))
    _program(drawing, left, 122, "fit", "all these steps in one command")
