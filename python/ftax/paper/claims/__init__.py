"""The paper's claims as data, tested on its own numbers and on today's."""
