"""Constituency parsing (section 6.3 of the paper)."""
