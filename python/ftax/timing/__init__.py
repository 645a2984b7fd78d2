"""Timed rounds and what they give: the plan, the session, the measurement of a cell, and whether
two of them differ.

Knows what can be driven (`Candidate`), and neither models nor runtimes.
"""
