"""Reconciliation: the names in a table are matched with pages, and its columns filled, as OpenRefine asks for it."""
