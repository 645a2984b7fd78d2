"""Tables, a file a kind of result: ``draw_...`` makes all that is printed, ``make_..._table`` one.

`ftax/__init__.py` names the function that draws a result; commands call the others themselves.
"""
