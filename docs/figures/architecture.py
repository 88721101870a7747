"""Figures 1 and 2 of the paper, with links to the classes and functions that implement their boxes."""

from typing import NamedTuple

from drawing import Drawing

_LAYERS = "t2t_keras/layers"
_SCORES = f"{_LAYERS}/attention/scores.py"
_MASKS = f"{_LAYERS}/attention/masks.py"
_HEADS = f"{_LAYERS}/attention/multi_head.py"
_WIDTH, _HEIGHT = 204, 44  # size of a box


class _Box(NamedTuple):
    """A box of a column of Figure 1.

    Attributes:
        top: the position of its upper side.
        words: the words in the paper.
        name: the name of the class or function.
        kind: the kind of its colours.
        link: the file with the definition.
    """

    top: float
    words: str
    name: str
    kind: str
    link: str

    @property
    def bottom(self) -> float:
        return self.top + _HEIGHT


def _norm(top: float) -> _Box:
    return _Box(top, "Add & Norm", "Residual", "norm", f"{_LAYERS}/residual.py")


def _feed_forward(top: float) -> _Box:
    return _Box(top, "Feed Forward", "FeedForward", "network", f"{_LAYERS}/feed_forward.py")


def _attention(top: float, words: str) -> _Box:
    return _Box(top, words, "MultiHeadAttention", "attention", _HEADS)


def _draw(drawing: Drawing, middle: float, box: _Box) -> None:
    place = middle - _WIDTH / 2, box.top, _WIDTH, _HEIGHT
    drawing.box(*place, box.words, f"`{box.name}`", kind=box.kind, link=f"{box.link}#{box.name.split('.')[-1]}")


def _sublayer(drawing: Drawing, middle: float, side: int, entry: float, box: _Box, norm: _Box) -> None:
    """Draws a box in its "Add & Norm", with the residual connection on one side; `entry` is the height of its input
    below.
    """
    branch, edge = box.bottom + 14, middle + side * (_WIDTH / 2 + 16)
    drawing.arrow((middle, entry), (middle, box.bottom))
    drawing.arrow((middle, branch), (edge, branch), (edge, norm.top + 22), (middle + side * _WIDTH / 2, norm.top + 22))
    drawing.arrow((middle, box.top), (middle, norm.bottom))
    _draw(drawing, middle, box)
    _draw(drawing, middle, norm)


def _embedded(drawing: Drawing, middle: float, side: int, words: str, name: str, link: str) -> None:
    """Draws embedding and positions below a stack."""
    _draw(drawing, middle, _Box(790, words, name, "embedding", link))
    drawing.arrow((middle, 858), (middle, 834))
    drawing.arrow((middle, 790), (middle, 767))
    drawing.plus(middle, 758)
    start = middle + side * 138
    drawing.box(
        *(start if side > 0 else start - 160, 736, 160, _HEIGHT),
        *("Positional Encoding", "`SinusoidalPositions`"),
        kind="plain",
        link=f"{_LAYERS}/position.py#SinusoidalPositions",
    )
    drawing.arrow((start, 758), (middle + side * 9, 758))


def figure_1() -> str:
    """Returns Figure 1, the Transformer."""
    drawing = Drawing(
        *(880, 900), "Figure 1 of the paper: encoder on the left, decoder on the right, each box with its class"
    )
    left, right = 320.0, 560.0
    drawing.frame(left - 132, 432, 248, 290)
    drawing.frame(right - 116, 276, 248, 446)
    _embedded(drawing, left, -1, "Input Embedding", "TiedEmbedding", f"{_LAYERS}/embedding.py")
    _embedded(drawing, right, 1, "Output Embedding", "embed_targets", "t2t_keras/models/encoder_decoder.py")
    drawing.text(left, 872, "Inputs")
    drawing.text(right, 872, "Outputs (shifted right)")

    _sublayer(drawing, left, -1, 749, _attention(646, "Multi-Head Attention"), _norm(586))
    _sublayer(drawing, left, -1, 586, _feed_forward(506), _norm(446))
    _sublayer(drawing, right, 1, 749, _attention(646, "Masked Multi-Head Attention"), _norm(586))
    cross = _attention(484, "Multi-Head Attention")
    drawing.arrow((left, 446), (left, 416), (440, 416), (440, 544), (right - 60, 544), (right - 60, cross.bottom))
    drawing.text(380, 404, "memory: keys, values", "small", "quiet")
    _sublayer(drawing, right, 1, 586, cross, _norm(424))
    _sublayer(drawing, right, 1, 424, _feed_forward(346), _norm(288))

    drawing.arrow((right, 288), (right, 246))
    _draw(drawing, right, _Box(202, "Linear", "TiedEmbedding.logits", "network", f"{_LAYERS}/embedding.py"))
    drawing.arrow((right, 202), (right, 176))
    drawing.box(right - _WIDTH / 2, 132, _WIDTH, _HEIGHT, "Softmax", "`best_candidates`", kind="output", link=_SOFTMAX)
    drawing.arrow((right, 132), (right, 104))
    drawing.text(right, 92, "Output probabilities")
    _names_of_stacks(drawing, left, right)
    return drawing.svg()


_SOFTMAX = "t2t_keras/search/candidates.py#best_candidates"


def _names_of_stacks(drawing: Drawing, left: float, right: float) -> None:
    """Draws the title and the names next to the two stacks."""
    transformer = "t2t_keras/models/transformer.py#Transformer"
    drawing.box(30, 28, 190, _HEIGHT, "The whole", "`Transformer`", link=transformer)
    stacks = ("encoder", "Encoder", left - 290, 540), ("decoder", "Decoder", right + 146, 480)
    for file, name, x, y in stacks:
        path = f"{_LAYERS}/{file}.py"
        drawing.box(x, y, 140, _HEIGHT, "N × each", f"`{name}Layer`", link=f"{path}#{name}Layer")
        drawing.box(x, y + 56, 140, _HEIGHT, "all N", f"`{name}`", link=f"{path}#{name}")


def figure_2() -> str:
    """Returns Figure 2, attention and its heads."""
    drawing = Drawing(
        *(820, 560),
        "Figure 2 of the paper, with functions: attention on the left, its heads on the right",
    )
    _equation_1(drawing, 200)
    _heads(drawing, 600)
    return drawing.svg()


def _equation_1(drawing: Drawing, middle: float) -> None:
    """Draws the left part of Figure 2."""
    function = "scaled_dot_product_attention"
    drawing.box(40, 20, 330, _HEIGHT, "Scaled Dot-Product Attention", f"`{function}`", link=f"{_SCORES}#{function}")
    boxes = (
        (430, "Q Kᵀ", "kernels.scores", "attention", "t2t_keras/kernels/plain.py#scores"),
        (362, "Scale: Q ÷ √d_key", "", "norm", f"{_SCORES}#{function}"),
        (294, "Mask (opt.)", "mask_bias", "embedding", f"{_SCORES}#mask_bias"),
        (226, "Softmax", "kernels.softmax", "output", "t2t_keras/kernels/plain.py#softmax"),
        (140, "weights × V", "", "attention", f"{_SCORES}#{function}"),
    )
    for number, (top, words, name, kind, link) in enumerate(boxes):
        lines = (words, f"`{name}`") if name else (words,)
        drawing.box(middle - _WIDTH / 2, top, _WIDTH, _HEIGHT, *lines, kind=kind, link=link)
        upper = boxes[number + 1][0] + _HEIGHT if number < len(boxes) - 1 else 96
        drawing.arrow((middle, top), (middle, upper))
    for x, name in ((middle - 45, "Q"), (middle + 45, "K")):
        drawing.arrow((x, 512), (x, 474))
        drawing.text(x, 526, name)
    drawing.arrow((middle + 130, 512), (middle + 130, 162), (middle + _WIDTH / 2, 162))
    drawing.text(middle + 130, 526, "V")


def _heads(drawing: Drawing, middle: float) -> None:
    """Draws the right part of Figure 2."""
    link = f"{_HEADS}#MultiHeadAttention"
    drawing.box(435, 20, 330, _HEIGHT, "Multi-Head Attention", "`MultiHeadAttention`", link=link)
    drawing.arrow((middle, 140), (middle, 96))
    drawing.box(
        middle - _WIDTH / 2,
        140,
        _WIDTH,
        _HEIGHT,
        "Concat, Linear",
        "`output_kernel`",
        kind="network",
        link=link,
    )
    drawing.arrow((middle, 262), (middle, 184))
    for shift in (16, 8, 0):  # h heads behind each other
        drawing.box(middle - 145 + shift, 262 - shift, 290, 60, kind="attention")
    drawing.box(
        *(middle - 145, 262, 290, 60, "Scaled Dot-Product Attention", "`attend`"),
        kind="attention",
        link=f"{_HEADS}#attend",
    )
    drawing.text(middle + 20, 234, "h heads", "quiet", "left")
    for x, name, kernel in ((-112, "Q", "query_kernel"), (0, "K", "key_kernel"), (112, "V", "value_kernel")):
        drawing.arrow((middle + x, 384), (middle + x, 322))
        for shift in (12, 6, 0):
            words = ("Linear", f"`{kernel}`") if shift == 0 else ()
            place = middle + x - 48 + shift, 396 - shift, 94, _HEIGHT
            drawing.box(*place, *words, kind="network", link=link if words else "")
        drawing.arrow((middle + x, 512), (middle + x, 440))
        drawing.text(middle + x, 526, name)
