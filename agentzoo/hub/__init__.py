"""Agents as folders that are exactly Hub repos: stage, describe, push, pull, verify, import and export them."""
