"""The paper's figures, drawn from its numbers and from a folder of results."""
