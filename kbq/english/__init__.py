"""Rules of English, and the tables that they rest on."""
