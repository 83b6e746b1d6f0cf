"""Build the datasets of the zoo, and import data of other projects."""
