"""Commands: each one parses its options, calls the library, prints the outcome."""
