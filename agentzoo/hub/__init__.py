"""From a finished run to a folder that is exactly a Hub repo: measured, drawn, described."""
