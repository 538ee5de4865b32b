"""Commands: each one parses, calls the library, and prints."""
