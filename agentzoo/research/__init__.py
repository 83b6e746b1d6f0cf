"""Analysis, studies, benchmarks and pre-training of language models."""
