"""One file per family. Every file here is found by itself; `@register` names the family."""
