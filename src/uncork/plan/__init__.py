"""The plan of record: steps, legal moves, dependencies, directives, SQLite store."""
