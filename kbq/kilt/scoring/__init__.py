"""Scoring: a gold record and its prediction become numbers, to the last digit of the official evaluation."""
