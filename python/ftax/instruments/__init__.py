"""What is read beside the clock: the gate, the trace, energy, utilisation and memory of a GPU.

These are read after the rounds and never beside them, because a latency measured while somebody
reads counters is not a latency.
"""
