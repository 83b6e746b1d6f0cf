"""The showroom: a zoo as a static site, made from the records that are there."""
