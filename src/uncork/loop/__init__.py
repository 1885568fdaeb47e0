"""The whole loop, phase by phase; people and assistants drive it from their doors."""
