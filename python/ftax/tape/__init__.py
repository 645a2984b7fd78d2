"""The operator calls of one inference: recorded once, replayed from C++ or as flat Python."""
