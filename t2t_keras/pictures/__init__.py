"""Draws results. The modules take arrays and names, and do not depend on models."""
