"""What is measured: models with their inputs, from the zoo, folders, files and the user's code.

Importing this package is cheap. Whatever a model is built from is imported when it is built.
"""
