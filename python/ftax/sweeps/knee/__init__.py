"""The knee: the largest size whose latency is still that of the smallest."""
