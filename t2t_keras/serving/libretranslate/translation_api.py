"""The handlers of LibreTranslate's REST API."""

import asyncio
import dataclasses
import functools
import json
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from starlette.requests import Request
from starlette.routing import Route
from starlette.types import ASGIApp

from t2t_keras.export_contract import NBEST
from t2t_keras.language_names import language_name
from t2t_keras.serving import off_loop
from t2t_keras.serving.access import ApiKeys
from t2t_keras.serving.core import Core
from t2t_keras.serving.http.bodies import read_body
from t2t_keras.serving.http.fields import Calls, QueuedCall
from t2t_keras.serving.http.hosts import header
from t2t_keras.serving.http.responses import Handler, answer_errors, data_response, json_response, wait_for_outputs
from t2t_keras.serving.libretranslate.detection import LanguageDetector
from t2t_keras.serving.libretranslate.form_fields import read_fields
from t2t_keras.serving.libretranslate.language_pairs import LanguagePair, LanguagePairs, served_pairs
from t2t_keras.serving.metrics import Call
from t2t_keras.serving.options import Limits
from t2t_keras.serving.refusals import Reason, address
from t2t_keras.serving.request_errors import Code, ServingError, invalid

_AUTO = "auto"
_TAG = re.compile("<[^<>]*>")

# Seconds after which LibreTranslate's own page gives up.
_FRONTEND_SECONDS = 500

# The translations of each text, best first.
_Translations = list[list[str]]


@dataclasses.dataclass(frozen=True)
class _Query:
    """A request to translate texts."""

    texts: list[str]
    is_list: bool
    source: str
    target: str
    is_html: bool
    num_alternatives: int


class TranslationApi:
    """LibreTranslate's API for the models of a server.

    Args:
        core: runs the calls.
        calls: queues the calls of requests.
        keys: accepted API keys; None disables the check.
    """

    def __init__(self, core: Core, calls: Calls, keys: ApiKeys | None) -> None:
        self._core, self._calls, self._keys = core, calls, keys
        self._detector = LanguageDetector()

    @property
    def routes(self) -> list[Route]:
        """The routes of the API."""
        posts: dict[str, Handler] = {"/translate": self._translate, "/detect": self._detect}
        gets: dict[str, Handler] = {
            "/languages": self._languages,
            "/health": self._health,
            "/frontend/settings": self._settings,
        }
        return [
            *(Route(path, answer_errors(handle), methods=["POST"]) for path, handle in posts.items()),
            *(Route(path, answer_errors(handle), methods=["GET"]) for path, handle in gets.items()),
        ]

    async def _languages(self, request: Request) -> ASGIApp:
        pairs = served_pairs(self._core)
        return _json([{**_named(code), "targets": pairs.targets(code)} for code in pairs.languages])

    async def _health(self, request: Request) -> ASGIApp:
        return _json({"status": "ok"})

    async def _settings(self, request: Request) -> ASGIApp:
        languages = served_pairs(self._core).languages
        return _json(
            {
                "charLimit": self._core.options.limits.max_sentence_bytes,
                "frontendTimeout": _FRONTEND_SECONDS,
                "apiKeys": self._keys is not None,
                "keyRequired": self._keys is not None,
                "suggestions": False,
                "filesTranslation": False,
                "supportedFilesFormat": [],
                "language": {
                    "source": {"code": _AUTO, "name": "Auto Detect"},
                    "target": _named(languages[-1]) if languages else None,
                },
            }
        )

    async def _detect(self, request: Request) -> ASGIApp:
        with self._core.metrics.request("rest", "Detect") as call:
            fields = await self._read_fields(request, call)
            call.signature = "detect"
            texts = _texts(fields, self._core.options.limits)
            return _json(await self._rank(texts, self._pairs()))

    async def _translate(self, request: Request) -> ASGIApp:
        with self._core.metrics.request("rest", "Translate") as call:
            fields = await self._read_fields(request, call)
            query = _query(fields, self._core.options.limits)
            content = await wait_for_outputs(request, self._answer(call, query))
            return data_response(self._core, iter([content]), len(content))

    async def _read_fields(self, request: Request, call: Call) -> Mapping[str, Any]:
        """Reads the fields of a request, and checks its key."""
        body = await read_body(request, self._core.options.limits.max_body_bytes)
        call.restart_clock()
        kind = header(request.scope, b"content-type") or ""
        query = request.scope.get("query_string", b"").decode("latin-1")
        fields = await off_loop.run(len(body), read_fields, body, kind, query)
        if self._keys and not self._keys.accepts_header(header(request.scope, b"authorization") or ""):
            key = fields.get("api_key")
            if not isinstance(key, str) or not self._keys.accepts(key):
                self._core.refusals.add("rest", Reason.KEY, address(request.client))
                if key:
                    raise ServingError(Code.PERMISSION_DENIED, "Invalid API key")
                raise invalid("a key is required: send the field api_key, or the header Authorization: Bearer KEY")
        return fields

    async def _answer(self, call: Call, query: _Query) -> bytes:
        """Translates the texts of a request, and returns the body of the response."""
        pairs = self._pairs()
        detected = None
        if query.source == _AUTO:
            texts = [_TAG.sub(" ", text) for text in query.texts] if query.is_html else query.texts
            detected = (await self._rank(texts, pairs))[0]
            source = detected["language"]
        else:
            source = _find(pairs, query.source)
        target = _find(pairs, query.target)
        route = pairs.route(source, target)
        if route is None:
            names = [f"{language_name(code)} ({code})" for code in (target, source)]
            raise invalid(f"{names[0]} is not available as a target language from {names[1]}")
        limit = self._core.options.request_seconds
        try:
            async with asyncio.timeout(limit):
                translations = await self._follow(call, route, query)
        except TimeoutError:
            raise ServingError(Code.DEADLINE_EXCEEDED, f"no answer within request_seconds={limit:g}") from None
        return await off_loop.run(sum(map(len, query.texts)), _body, query, translations, detected)

    async def _follow(self, call: Call, route: Sequence[LanguagePair], query: _Query) -> _Translations:
        """Translates texts with one model after another; only the last one gives alternatives."""
        translations = [[text] for text in query.texts]
        for number, pair in enumerate(route, start=1):
            num_alternatives = query.num_alternatives if number == len(route) else 0
            texts = [hypotheses[0] for hypotheses in translations]
            work = sys.maxsize if query.is_html else sum(map(len, texts))
            begin = functools.partial(self._begin, call, pair, texts, query.is_html, num_alternatives)
            queued = await off_loop.run(work, begin, give_up=QueuedCall.give_up)
            outputs = await queued.result()
            translated = outputs["translations" if "translations" in outputs else "translation"]
            rows = translated.reshape(len(translations), -1)  # --> [texts, hypotheses]
            translations = [[text.decode("utf-8", "replace") for text in row] for row in rows]
        return translations

    def _begin(
        self, call: Call, pair: LanguagePair, texts: Sequence[str], is_html: bool, num_alternatives: int
    ) -> QueuedCall:
        """Queues the calls for some texts."""
        if is_html and not any(field.name == "markup" for field in self._calls.fields):
            raise ServingError(Code.UNIMPLEMENTED, "html format is not supported")
        with self._core.lend(pair.model, None) as loan:
            call.model = pair.model
            content: dict[str, Any] = {"inputs": [text if is_html else pair.source_text(text) for text in texts]}
            if is_html:
                content |= {"markup": "html", "tag": pair.tag}
            elif num_alternatives and NBEST in loan.model.signatures:
                content["signature_name"] = NBEST
            return self._calls.begin(call, loan, content)

    def _pairs(self) -> LanguagePairs:
        """Returns the language pairs; raises a `ServingError` if no model for translation is served."""
        pairs = served_pairs(self._core)
        if not pairs.languages:
            raise ServingError(Code.UNAVAILABLE, "no model for translation is served")
        return pairs

    async def _rank(self, texts: Sequence[str], pairs: LanguagePairs) -> list[dict[str, Any]]:
        """Returns the likely languages of all texts together, the most likely one first."""
        ranking = await off_loop.run(sys.maxsize, self._detector.rank, "\n".join(texts), pairs.languages)
        return [{"confidence": round(confidence, 1), "language": language} for language, confidence in ranking]


def _query(fields: Mapping[str, Any], limits: Limits) -> _Query:
    """Checks the fields of a `/translate` request."""
    texts = _texts(fields, limits)
    source, target = (_string(fields, name) for name in ("source", "target"))
    kind = _string(fields, "format") if fields.get("format") else "text"
    if kind not in ("text", "html"):
        raise invalid(f"{kind} format is not supported")
    try:
        num_alternatives = max(0, int(fields.get("alternatives") or 0))
    except (TypeError, ValueError, OverflowError):
        raise invalid("Invalid request: alternatives parameter is not a number") from None
    return _Query(texts, isinstance(fields["q"], list), source, target, kind == "html", num_alternatives)


def _texts(fields: Mapping[str, Any], limits: Limits) -> list[str]:
    """Returns the texts in the field "q", which is a string or a list of strings."""
    if not (q := fields.get("q")):
        raise invalid("Invalid request: missing q parameter")
    texts = q if isinstance(q, list) else [q]
    if not all(isinstance(text, str) for text in texts):
        raise invalid("Invalid request: q must be a string or a list of strings")
    if len(texts) > limits.max_sentences:
        raise invalid(f"{len(texts)} texts in a request: the limit is max_sentences={limits.max_sentences}")
    try:
        "".join(texts).encode("utf-8")
    except UnicodeEncodeError as error:
        raise invalid(f"q is not valid Unicode: {error.reason}") from error
    return texts


def _string(fields: Mapping[str, Any], name: str) -> str:
    value = fields.get(name)
    if not value:
        raise invalid(f"Invalid request: missing {name} parameter")
    if not isinstance(value, str):
        raise invalid(f"Invalid request: {name} must be a string")
    return value


def _find(pairs: LanguagePairs, code: str) -> str:
    """Returns the language of the models for a client's code; raises a `ServingError` if there is none."""
    if (language := pairs.find(code)) is None:
        raise invalid(f"{code} is not supported")
    return language


def _body(query: _Query, translations: _Translations, detected: Mapping[str, Any] | None) -> bytes:
    best = [texts[0] for texts in translations]
    others = [list(dict.fromkeys(text for text in texts if text not in ("", texts[0]))) for texts in translations]
    others = [texts[: query.num_alternatives] for texts in others]
    content: dict[str, Any] = {"translatedText": best if query.is_list else best[0]}
    if detected:
        content["detectedLanguage"] = [detected] * len(best) if query.is_list else detected
    if query.num_alternatives:
        content["alternatives"] = others if query.is_list else others[0]
    return json.dumps(content, ensure_ascii=False).encode("utf-8")


def _named(code: str) -> dict[str, str]:
    return {"code": code, "name": language_name(code)}


def _json(content: Any) -> ASGIApp:
    return json_response(json.dumps(content, ensure_ascii=False).encode("utf-8"))
