"""All C code, and the PyTorch code it is compared with."""
