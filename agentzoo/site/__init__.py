"""The showroom: a static site of a zoo, made from its records."""
