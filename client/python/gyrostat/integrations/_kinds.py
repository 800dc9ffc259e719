"""Kinds of intervention that a trainer's callbacks can carry out."""

from gyrostat.trouble import LOGGER


def possible(options, beyond):
    """watch()'s options without the kinds in `beyond`, of which the callback can do nothing: an order of one is then
    refused, and not taken and forgotten."""
    allow = options.get("allow", ())
    kinds = [allow] if isinstance(allow, str) else allow
    try:
        left = [kind for kind in kinds if kind not in beyond]
        lost = [kind for kind in kinds if kind in beyond]
    except TypeError:
        return options  # watch() says what is wrong with it.
    if not lost:
        return options
    LOGGER.warning("allow names %s, which no callback of this trainer can carry out; it is refused", ", ".join(lost))
    return {**options, "allow": left}
