"""The REST API of LibreTranslate, for clients that were written for it.

`language_pairs` knows which models translate between which languages, `form_fields` reads requests, `detection`
recognises languages, and `translation_api` has the handlers.

Reference: https://docs.libretranslate.com/api
"""
