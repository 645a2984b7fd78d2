"""Ways to execute a model, each prepared for the timed loop and checked against eager.

A runtime's module is imported when it is prepared, so that onnxruntime and transformers stay out
until they are used (`catalogue`).
"""
