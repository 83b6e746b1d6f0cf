"""Plain text for language models: files, tokens, chunks."""
