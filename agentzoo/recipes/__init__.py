"""One file per family: a base recipe, and a table `RECIPES` with the changes of each agent id."""
