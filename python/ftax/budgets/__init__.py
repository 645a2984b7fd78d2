"""Counts of one step, exact, and the budgets that they are held to."""
