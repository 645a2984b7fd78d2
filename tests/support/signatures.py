"""What a function of ftax can be called with."""

import typing


def list_options(function):
    """The keywords that it takes as a TypedDict."""
    annotation = function.__annotations__["options"]
    if isinstance(annotation, str):  # alone: what it returns may be imported for types only
        annotation = eval(annotation, function.__globals__)
    (options,) = typing.get_args(annotation)
    return set(options.__optional_keys__)
