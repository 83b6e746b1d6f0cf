"""One file a family. A file is found by being here; `@register` gives it its name."""
