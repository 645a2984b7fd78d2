"""Traces: which kernels ran, whether they are the same on every rung, and who kept the device
waiting.

Recording and judging are apart. All but `tracer` works on a record of what was traced, so it
needs no GPU, can be done later, and is tested with traces made by hand.
"""
