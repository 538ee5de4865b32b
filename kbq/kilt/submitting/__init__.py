"""Submitting: prediction files are checked, repaired, merged and packaged."""
