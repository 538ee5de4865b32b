"""Dump: encode the pages of a corpus once, as vectors on disk in the form in which they are
searched.
"""
