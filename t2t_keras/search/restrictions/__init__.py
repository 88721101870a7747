"""Restrictions of outputs: rules, prefixes, constraints and excluded phrases."""
