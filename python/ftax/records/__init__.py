"""What ftax writes down: immutable records that check themselves, and the files that hold them.

The ground floor: nothing here knows what is measured, nor how it looks on a page.
"""
