"""Assistants come in here: MCP server, model-driven explorers."""
