"""One file per family. Files are found by their names; `@register` names the family."""
