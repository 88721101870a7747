"""Flags that several programs share."""
