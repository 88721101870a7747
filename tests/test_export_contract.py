"""The web page, the documents and the code of the package agree with the contract of exports."""

import ast
import re

from t2t_keras.export_contract import SIGNATURES, SignatureContract, TensorType
from tests.test_architecture import PACKAGE, ROOT

# The other names are also ordinary words.
UNAMBIGUOUS = {"serving_default", "nbest", "align", "stream_begin", "stream_advance"}


def cell(contract: SignatureContract, side: str) -> str:
    tensors: dict[str, TensorType] = getattr(contract, side)
    texts = [
        f"`{name}` {'' if dtype == 'string' else f'{dtype} '}[{', '.join(map(str, axes))}]"
        for name, (dtype, axes) in tensors.items()
    ]
    has_state = contract.takes_state if side == "inputs" else contract.returns_state
    return ", ".join([*texts, *["a state"] * has_state])


def test_documented_signatures():
    page = (ROOT / "docs" / "exports.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| (.+?) \| (.+?) \|", page.partition("\n## Signatures\n")[2], re.MULTILINE)
    assert rows == [(name, cell(each, "inputs"), cell(each, "outputs")) for name, each in SIGNATURES.items()]


def test_signature_names_are_defined_once():
    names_by_file = {}
    for path in PACKAGE:
        text = path.read_text(encoding="utf-8")
        constants = {node.value for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Constant)}
        if "assets.extra" in text or constants & UNAMBIGUOUS:
            names_by_file[path.name] = constants & UNAMBIGUOUS
    # JSON lines also use the key "nbest".
    assert names_by_file == {"export_contract.py": UNAMBIGUOUS, "json_lines.py": {"nbest"}}


def test_web_page_uses_existing_signatures():
    page = (ROOT / "t2t_keras" / "serving" / "page" / "server.js").read_text(encoding="utf-8")
    signatures = re.findall(r'(?:predict|gives)\("(\w+)"|"(\w+)" in this\.signatures', page)
    assert {"".join(names) for names in signatures} == {*SIGNATURES} - {"sample", "score", "tokens", "constrained"}
    for name, inputs in re.findall(r'gives\("(\w+)", (\[[^]]*\])', page):
        assert [each for each in re.findall(r'"(\w+)"', inputs)] in ([], [*SIGNATURES[name].inputs])
