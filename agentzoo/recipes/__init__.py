"""One file a family: a base recipe and a table, `RECIPES`, of what each agent id changes."""
