"""The contract of an export is stated once: programs, the web page and the documents agree with it."""

import ast
import re

from t2t_keras.export_contract import SIGNATURES, SignatureContract, TensorType
from tests.test_architecture import PACKAGE, ROOT

# The other names are ordinary words, too.
UNMISTAKABLE = {"serving_default", "nbest", "align", "stream_begin", "stream_advance"}


def cell(contract: SignatureContract, side: str) -> str:
    tensors: dict[str, TensorType] = getattr(contract, side)
    texts = [
        f"`{name}` {'' if dtype == 'string' else f'{dtype} '}[{', '.join(map(str, axes))}]"
        for name, (dtype, axes) in tensors.items()
    ]
    has_state = contract.takes_state if side == "inputs" else contract.returns_state
    return ", ".join([*texts, *["a state"] * has_state])


def test_the_documents_describe_it():
    page = (ROOT / "docs" / "exports.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| (.+?) \| (.+?) \|", page.partition("\n## Signatures\n")[2], re.MULTILINE)
    assert rows == [(name, cell(each, "inputs"), cell(each, "outputs")) for name, each in SIGNATURES.items()]


def test_one_file_of_the_package_has_the_names():
    spelled = {}
    for path in PACKAGE:
        text = path.read_text(encoding="utf-8")
        constants = {node.value for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Constant)}
        if "assets.extra" in text or constants & UNMISTAKABLE:
            spelled[path.name] = constants & UNMISTAKABLE
    # The JSON object of a line has the key "nbest", too.
    assert spelled == {"export_contract.py": UNMISTAKABLE, "json_lines.py": {"nbest"}}


def test_the_page_asks_for_what_there_is():
    page = (ROOT / "t2t_keras" / "serving" / "page" / "server.js").read_text(encoding="utf-8")
    signatures = re.findall(r'(?:predict|gives)\("(\w+)"|"(\w+)" in this\.signatures', page)
    assert {"".join(names) for names in signatures} == {*SIGNATURES} - {"sample", "score", "tokens", "constrained"}
    for name, inputs in re.findall(r'gives\("(\w+)", (\[[^]]*\])', page):
        assert [each for each in re.findall(r'"(\w+)"', inputs)] in ([], [*SIGNATURES[name].inputs])
