"""Checks that a user runs on their own machines, of training and serving, and their report."""
