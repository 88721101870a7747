"""Requests in; translations, scores and explanations out."""
