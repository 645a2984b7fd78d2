"""Ways to execute a model, each prepared for the timed loop and checked against eager.

The surprising choice: a runtime's own module is imported when it is prepared, so that onnxruntime,
transformers and JAX stay out until they are used (`catalogue`).
"""
