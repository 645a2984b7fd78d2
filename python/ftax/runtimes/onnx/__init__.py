"""ONNX Runtime: the export, the session, and its rows under both hosts."""
