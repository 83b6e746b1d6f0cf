"""The packaged recipes. Each file has a table `RECIPES`, agent id -> `Recipe`; files with an underscore are shared."""
