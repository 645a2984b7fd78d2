"""Reads everything about a machine and a process that can change what is measured on it.

What is left out: no host name, no user name, no path and no device
serial number, so that a results file can be published as it is. A variable whose value holds a
path is recorded as set, with the value withheld.
"""
