"""Random invalid requests; the same seed gives the same request."""

import base64
import functools
import gzip
import json
import math
import random
import urllib.parse

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import tensor_pb2
from tensorflow_serving.apis import predict_pb2

from tests.attack.hostile_clients import MODEL, head

TEXTS = [
    "A man is standing.",
    "",
    "Zwei Hunde spielen im Schnee",
    "日本語 \U0001f600",
    "dog " * 40,
    "\x00\t\r\n",
    "a" * 300,
]
# Parts of valid and invalid documents.
MARKUP = [
    *("<p>", "</p>", "<b>", "</b>", "<br/>", "<br>", "<a href='x'>", "</a>", "<a href='", "<", ">", "</", "<b", "&"),
    *("&amp;", "&#x110000;", "&#0;", "&nbsp;", "&quot", "<!--", "-->", "<script>", "</script>", "<textarea>", "<pre>"),
    *("<![CDATA[", "]]>", "<?xml version='1.0'?>", "<!DOCTYPE a [<!ENTITY b 'c'>]>", "&b;", "<x:y>", "<svg/>", "<p/>"),
    *(
        "{n, plural, one {",
        "# dog",
        "} other {a {x}}}",
        "'{'",
        "&shy;",
        "&#8203;",
        "<sup>",
        "</sup>",
        "<b translate=no>",
    ),
    *("{name}", "{{x}}", "%s", "%(name)d", "${x}", "{", "}", "%", "<b>a</b>", "<i>dogs</i> play", "\ue000", "1", "."),
]
LARGE = 2 << 20  # bytes, above the limit of a body
SERVICE = "/tensorflow.serving.{}"
METHODS = [
    "PredictionService/GetModelMetadata",
    "PredictionService/Classify",
    "PredictionService/MultiInference",
    "ModelService/GetModelStatus",
    "ModelService/HandleReloadConfigRequest",
    "PredictionService/Nothing",
]


def call(draw):
    """Draws a signature and valid inputs."""
    rows = draw.randint(1, 4)
    texts = [draw.choice(TEXTS) for _ in range(rows)]
    signature = draw.choice(
        ["serving_default", "nbest", "sample", "score", "tokens", "constrained", "align", "attention", "alternatives"]
    )
    if signature in ("tokens", "constrained"):
        length = draw.randint(1, 20)
        ids = [[draw.randrange(300) for _ in range(length)] for _ in range(rows)]
        inputs = {"source_ids": ids, "source_length": [draw.randint(0, length) for _ in range(rows)]}
        if signature == "constrained":
            size = draw.choice([1, 2, 10]), draw.choice([1, 3]), draw.choice([1, 4])
            phrases = [draw.choice([0, 5, 70, 299, -1, 2**31 - 1]) for _ in range(rows * math.prod(size))]
            inputs["constraints"] = np.reshape(phrases, [rows, *size]).tolist()
        return signature, inputs
    inputs = {"text": texts}
    if signature == "sample":
        inputs["seed"] = [draw.randrange(-(2**63), 2**63) for _ in range(rows)]
    if signature in ("score", "attention"):
        inputs["target"] = texts[::-1]
    if signature == "alternatives":
        inputs["prefix"] = [text[: draw.choice([0, 3, 10, 300])] for text in texts[::-1]]
    if signature == "attention":
        inputs["kind"] = [draw.choice(["encoder", "decoder", "cross"]) for _ in range(rows)]
        inputs["layer"] = [0] * rows
    return signature, inputs


def document(draw):
    """Draws a text with mostly invalid markup."""
    whole = "<p>Two <b>dogs</b> play, {name}.</p>"
    parts = [draw.choice([*MARKUP, *TEXTS[:3], whole]) for _ in range(draw.choice([0, 1, 3, 10, 60]))]
    return draw.choice([whole, f"<x>{whole * draw.randint(1, 20)}</x>", draw.choice(MARKUP) * 900, "".join(parts)])


def marked_call(draw):
    """Draws the content of a request with documents."""
    kind, documents = draw.choice(["html", "xml", "placeholders"]), [document(draw) for _ in range(draw.randint(1, 3))]
    inputs = draw.choice([{"inputs": {"text": documents}}, {"inputs": documents}, {"instances": documents}])
    attributes = draw.choice([{}, {}, {"markup_attributes": draw.choice([["href", "b"], [], "alt", [1]])}])
    return {"markup": kind, **attributes, **inputs}


def glossed_call(draw):
    """Draws the content of a request with a glossary, which may have invalid entries."""
    words = ["Two", "dog", "A man", "Zwei Hunde", "spielen", "日本", "a", ".", "<b>", "x" * 300]
    unusual = ["", "|", " ", "\t", "\x00", "\u2581", "</s>", "\U0001f600", "a|" * 400]
    entries = [
        [
            draw.choice([*words, f"dog {number}"]),
            "|".join(draw.choice(words) for _ in range(draw.choice([1, 1, 3, 40]))),
        ]
        for number in range(draw.choice([0, 1, 3, 60, 300]))
    ]
    entries = list({term: [term, forms] for term, forms in entries}.values())
    if entries and draw.random() < 0.3:
        entries[draw.randrange(len(entries))][draw.randrange(2)] = draw.choice(unusual)
    texts = [draw.choice(TEXTS) for _ in range(draw.randint(1, 4))]
    return {"glossary": entries, **draw.choice([{"inputs": {"text": texts}}, {"instances": texts}])}


def json_call(draw):
    """Draws the content of a request, which is valid except for documents and glossaries."""
    if draw.random() < 0.3:
        return draw.choice([marked_call, glossed_call])(draw)
    signature, inputs = call(draw)
    if draw.random() < 0.5:
        return {"signature_name": signature, "inputs": inputs}
    rows = zip(*inputs.values(), strict=True)
    return {"signature_name": signature, "instances": [dict(zip(inputs, row, strict=True)) for row in rows]}


def unusual_json(draw):
    """Draws the text of an unusual JSON value."""
    depth = draw.choice([2, 30, 100, 300, 490, 900, 990, 1000, 1100, 3000, 100_000])
    return draw.choice(
        [
            lambda: draw.choice(
                ["null", "true", "-0", "NaN", "-Infinity", "1e999999", "1e-999999", "{}", "[]", "[[]]"]
            ),
            lambda: draw.choice(["-", ""]) + "9" * draw.choice([10, 18, 19, 20, 39, 309, 4299, 4300, 4301, 100_000]),
            lambda: f"0.{'0' * draw.choice([10, 400, 5000])}1",
            lambda: "[" * depth + "]" * depth,
            lambda: '{"a":' * depth + "1" + "}" * depth,
            lambda: '[{"b64":' * depth + '"YQ=="' + "}]" * depth,
            lambda: "[" * depth,
            lambda: json.dumps({"b64": draw.choice(["YQ==", "Y", "%", "", "äöü", 3, None, ["YQ=="], "A" * 10_000])}),
            lambda: json.dumps(draw.choice(["\ud800", "\udfff\ud800", "\uffff", "\x00", "x" * 5000, "ä" * 2049])),
            lambda: json.dumps({draw.choice(["", "text", "b64", "\ud800", "x" * 10_000, "\x00"]): ["a"]}),
            lambda: json.dumps({f"name {number}": [] for number in range(draw.choice([1, 100, 20_000]))}),
            lambda: json.dumps([draw.choice([1, "a", None, [], {}, 1.5, True]) for _ in range(draw.randint(1, 300))]),
            lambda: json.dumps([[[1]] * draw.choice([1, 1024, 1025]) for _ in range(draw.choice([1, 256, 257]))]),
            lambda: json.dumps([2**31, -(2**31) - 1, 2**63, 2**64, 10**300][: draw.randint(1, 5)]),
        ]
    )()


def call_with_unusual_value(draw):
    """Draws a valid request and replaces one value by an unusual one."""
    content = json_call(draw)
    parent, key = content, draw.choice(list(content))
    while isinstance(parent[key], dict | list) and parent[key] and draw.random() < 0.75:
        parent = parent[key]
        key = draw.choice(list(parent)) if isinstance(parent, dict) else draw.randrange(len(parent))
    mark = "replaced by an unusual value"
    parent[key] = mark
    return json.dumps(content).replace(json.dumps(mark), unusual_json(draw)).encode()


def flip_bytes(draw, body):
    """Replaces some bytes."""
    changed = bytearray(body)
    for _ in range(draw.choice([1, 1, 2, 5, 20])):
        changed[draw.randrange(len(changed))] = draw.randrange(256)
    return bytes(changed)


def truncate(draw, body):
    """Removes the end or the beginning."""
    end = draw.randrange(len(body))
    return body[:end] if draw.random() < 0.8 else body[end:]


def repeat_part(draw, body):
    """Repeats a part once or many times."""
    start, end = sorted(draw.randrange(len(body) + 1) for _ in range(2))
    return body[:end] + body[start:end] * draw.choice([1, 2, 50 if end - start < 1000 else 3]) + body[end:]


def noise(draw):
    """Draws random bytes."""
    return draw.randbytes(draw.choice([0, 1, 10, 100, 1000, 100_000]))


def damage(draw, body):
    """Damages a body in one of several ways."""
    return draw.choice([flip_bytes, truncate, repeat_part])(draw, body) if body else noise(draw)


def body(draw):
    """Draws the body of a REST request."""
    valid = json.dumps(json_call(draw), ensure_ascii=draw.random() < 0.5).encode()
    kinds = [lambda: damage(draw, valid), lambda: call_with_unusual_value(draw), lambda: unusual_json(draw).encode()]
    rare = [lambda: noise(draw), lambda: valid.decode().encode("utf-16"), lambda: b" " * LARGE, lambda: valid]
    return draw.choice(kinds if draw.random() < 0.85 else rare)()


@functools.cache
def compress_zeros(size):
    """Compresses `size` zero bytes."""
    return gzip.compress(bytes(size), 1, mtime=0)


def compress(draw, content):
    """Compresses the content correctly or incorrectly, or returns a decompression bomb."""
    return draw.choice(
        [
            lambda: gzip.compress(content, mtime=0),
            lambda: damage(draw, gzip.compress(content, mtime=0)),
            lambda: compress_zeros(draw.choice([1 << 20, 1 << 26])),
            lambda: gzip.compress(gzip.compress(content, mtime=0), mtime=0),
            lambda: content,
        ]
    )()


def invalid_head(draw, size):
    """Draws an invalid or misleading head of a request."""
    valid = head(size)
    length = b"Content-Length: %d" % size
    other = draw.choice(
        ["-1", "1e3", "0x10", "+5", "", "5, 5", "٣", "9" * 30, "9" * 5000, str(size + 7), str(size // 2)]
    )
    return draw.choice(
        [
            lambda: valid.replace(length, f"Content-Length: {other}".encode()),
            lambda: valid.replace(length, length + b"\r\n" + length),
            lambda: valid.replace(length, b"Transfer-Encoding: chunked"),
            lambda: valid.replace(length, b"Transfer-Encoding: gzip, chunked"),
            lambda: valid.replace(length, length + b"\r\nExpect: 100-continue"),
            lambda: valid.replace(
                length, length + b"\r\nContent-Encoding: " + draw.choice([b"br", b"\xff", b"gzip, gzip"])
            ),
            lambda: valid.replace(b"localhost", draw.choice([b"[", b"localhost/[", b"a" * 5000, b"\xff", b"", b"@:"])),
            lambda: valid.replace(b"Connection", draw.choice([b"X" * 70_000, b"Upgrade: h2c\r\nA", b"\xff"])),
            lambda: valid.replace(b":predict", unusual_path(draw)),
            lambda: valid.replace(MODEL.encode(), unusual_path(draw)),
            lambda: head(
                size, draw.choice(["GET", "PUT", "HEAD", "OPTIONS", "TRACE", "CONNECT", "PRI", "gEt", "\x01"])
            ),
            lambda: damage(draw, valid),
        ]
    )()


def unusual_path(draw):
    """Draws an unknown or a different path."""
    pieces = [
        "/versions/",
        "1",
        "9" * 30,
        "/labels/",
        "..",
        "%2f",
        "%00",
        "%ff",
        "%",
        "//",
        ":",
        "?",
        "#",
        "[",
        "ä",
        "\\",
    ]
    pieces += ["/metadata", ":predict", ":classify", "/server.json", "/page.js", "x" * 3000, "/v1/models/", "*", "@"]
    return "".join(draw.choice(pieces) for _ in range(draw.randint(1, 5))).encode()


def libretranslate(draw):
    """Draws a request in LibreTranslate's format: JSON or a form; valid, damaged or with an unusual value."""
    texts = [draw.choice([*TEXTS, document(draw)]) for _ in range(draw.choice([1, 3]))]
    fields = {
        "q": draw.choice([texts, texts[0]]),
        "source": draw.choice(["en", "en", "auto", "de", "en_US", "x" * 5000, "\ud800"]),
        "target": draw.choice(["de", "de", "DE", "xx", ""]),
        "format": draw.choice(["text", "html", "xml"]),
        "alternatives": draw.choice([0, 3, -1, 10**6]),
    }
    if draw.random() < 0.2:
        del fields[draw.choice(list(fields))]
    if draw.random() < 0.5:
        kind, content = "application/json", json.dumps(fields)
        if draw.random() < 0.3:
            fields[draw.choice(list(fields))] = mark = "replaced by an unusual value"
            content = json.dumps(fields).replace(json.dumps(mark), unusual_json(draw))
        content = content.encode()
    elif draw.random() < 0.5:
        kind, content = "application/x-www-form-urlencoded", urllib.parse.urlencode(fields, errors="replace").encode()
    else:
        kind = f"multipart/form-data; boundary={draw.choice(['xyz', 'xyz', '', '-'])}"
        parts = [f'--xyz\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{fields[name]}' for name in fields]
        content = "\r\n".join([*parts, "--xyz--"]).encode("utf-8", "replace")
    if draw.random() < 0.3:
        content = damage(draw, content)
    path = draw.choice(["/translate", "/translate", "/detect", "/languages"])
    return head(len(content), path=path).replace(b"\r\n\r\n", f"\r\nContent-Type: {kind}\r\n\r\n".encode()) + content


def rest(seed):
    """Returns the bytes of a REST client, and whether they are a complete request."""
    draw = random.Random(seed)
    if draw.random() < 0.1:
        return libretranslate(draw), True
    content = body(draw)
    if draw.random() < 0.15:
        content = compress(draw, content)
        return head(len(content)).replace(b"\r\n\r\n", b"\r\nContent-Encoding: gzip\r\n\r\n") + content, True
    if draw.random() < 0.15:
        return invalid_head(draw, len(content)) + content, False
    return head(len(content)) + content, True


def unusual_tensor(draw):
    """Draws an invalid or unexpected tensor."""
    proto = tensor_pb2.TensorProto(dtype=draw.choice([0, 1, 3, 7, 7, 7, 9, 14, 20, 21, 23, 77, 101, 2**31 - 1]))
    sizes = draw.choice([[], [1], [2], [0], [-1], [1 << 40], [2**62, 2**62], [1 << 20], [1] * 40, [3] * 300, [1, 1]])
    if draw.random() < 0.02:
        sizes = [2**62] * 80_000
    for size in sizes:
        proto.tensor_shape.dim.add(size=size)
    proto.tensor_shape.unknown_rank = draw.random() < 0.1
    for field, values in {
        "string_val": [b"A man", b"\xff\xfe", b"", b"x" * 5000],
        "int_val": [0, 5, -1, 2**31 - 1],
        "int64_val": [0, -(2**63)],
        "float_val": [0.5, float("nan"), float("inf")],
        "half_val": [2**31 - 1, -1],
        "bool_val": [True],
        "uint32_val": [2**32 - 1],
    }.items():
        if draw.random() < 0.3:
            getattr(proto, field).extend(draw.choice(values) for _ in range(draw.choice([1, 1, 2, 300])))
    if draw.random() < 0.3:
        proto.tensor_content = noise(draw)[:10_000]
    if draw.random() < 0.05:
        proto.resource_handle_val.add(name="x" * 100)
        proto.variant_val.add(type_name="tensorflow::Nothing", metadata=b"\xff")
    return proto


def predict_request(draw):
    """Draws a valid message, or a message with invalid parts."""
    signature, inputs = call(draw)
    predict_message = predict_pb2.PredictRequest()
    predict_message.model_spec.name, predict_message.model_spec.signature_name = "model", signature
    for name, values in inputs.items():
        kind = {"seed": tf.int64, "text": tf.string}.get(name)
        predict_message.inputs[name].CopyFrom(tf.make_tensor_proto(np.array(values), kind))
    if draw.random() < 0.6:
        predict_message.inputs[draw.choice([*inputs, "text", "", "x" * 20_000])].CopyFrom(unusual_tensor(draw))
    if draw.random() < 0.1:
        predict_message.output_filter.extend(
            draw.choice(["", "score", "x" * 2000, "score"]) for _ in range(draw.choice([1, 200]))
        )
    spec = predict_message.model_spec
    if draw.random() < 0.1:
        spec.name = draw.choice(["", "other", "x" * 20_000, "model\n", "ä"])
    if draw.random() < 0.1:
        spec.signature_name = draw.choice(["other", "x" * 20_000, "line\nline", "\U0001f600"])
    if draw.random() < 0.1:
        spec.version.value = draw.choice([0, 1, 7, -1, 2**63 - 1, -(2**63)])
    elif draw.random() < 0.1:
        spec.version_label = draw.choice(["stable", "x" * 20_000, "\n"])
    return predict_message


def grpc(seed):
    """Returns the path of a gRPC method, and a message for it."""
    draw = random.Random(seed)
    predict_message = predict_request(draw)
    valid = predict_message.SerializeToString()
    if draw.random() < 0.1:
        method = SERVICE.format(draw.choice(METHODS)) if draw.random() < 0.8 else "/grpc.health.v1.Health/Check"
        spec = predict_message.SerializePartialToString() if draw.random() < 0.3 else b"\x0a\x07\x0a\x05model"
        return method, spec if draw.random() < 0.5 else damage(draw, spec)
    message = valid
    if draw.random() < 0.5:
        message = damage(draw, valid) if draw.random() < 0.9 else noise(draw)
    if draw.random() < 0.01:
        message = valid + b"\x0a" + base64.b64encode(bytes(LARGE))
    return SERVICE.format("PredictionService/Predict"), message
