"""Filling: fill the empty cells of tables from a knowledge base, each with its evidence."""
