"""Are the arguments of watch() and mon.step() what they should be?

A wrong one is said once, naming the argument, what was seen and what is wanted, and then does as little as it can: it
is as good as not given. Where that could change more than somebody wanted, nothing is allowed at all. Nothing here
raises, and nothing here imports torch.
"""

import collections.abc
import math
import numbers
import re

KINDS = ("qk_clip", "warmup_extension", "lr_scale", "deepnorm_alpha", "grad_clip", "skip_step", "checkpoint",
         "rollback", "halt", "collect")  # Of intervention, as gyrostat.h and gyrostatctl call them.
_SCHEDULES = ("const", "linear", "cosine", "wsd", "noam")
_SCHEDULE = {"kind": "schedule_kind", "peak": "schedule_peak", "warmup_steps": "warmup_steps",
             "total_steps": "total_steps"}  # Of schedule=, and of gyro_model.
_SHOWN_MAX = 60
_STEP_MAX = 1 << 53  # As gyrostat.h: a step is also a double.
_TAU_MAX = 1e9
_RUN = re.compile(r"[A-Za-z0-9._:-]{1,128}")


def shown(value):
    """For a sentence: one line, short. Large things and strange things by their type."""
    if value is None or isinstance(value, (str, bytes, numbers.Number)):
        try:
            text = repr(value[:_SHOWN_MAX] if isinstance(value, (str, bytes)) else value)
        except Exception:  # Somebody's own class.
            text = ""
        if text:
            return text if len(text) <= _SHOWN_MAX + 3 else text[:_SHOWN_MAX] + "…"
    name = type(value).__name__
    return f"{'an' if name[0] in 'AEIOUaeiou' else 'a'} {name}"


def whole_number(value):
    """A number, or a tensor of one entry, as an int within 2^53 of 0; else None."""
    if isinstance(value, bool):
        return None
    try:
        number = int(value)
        return number if bool(number == value) and abs(number) <= _STEP_MAX else None
    except Exception:  # Not a number, NaN, infinite, more than one entry.
        return None


def run(value, fuse):
    """The run's name; None: not given. A strange one is made usable: two jobs without a name would be one run."""
    if value is None or value == "":
        return None
    if not isinstance(value, (str, int)) or isinstance(value, bool):
        fuse.say(f"run is {shown(value)}, wanted a name; taken as not given")
        return None
    name = str(value)
    if _RUN.fullmatch(name):
        return name
    made = plain(name)
    fuse.say(f"run is {shown(name)}, wanted 1 to 128 of A-Z a-z 0-9 . _ : -; the run is called {made}")
    return made


def plain(name):
    """`name` with every character that a run's name must not have made a dash, cut to 128."""
    return re.sub(r"[^A-Za-z0-9._:-]", "-", name)[:128]


def address(value, fuse):
    """Whether something may be there. Said where not."""
    wanted = "host:port with a port from 1 to 65535"
    if isinstance(value, str):
        host, _, port = value.rpartition(":")
        fits = re.fullmatch(r"[0-9]{1,5}", port) and 1 <= int(port) <= 65535
        named = re.fullmatch(r"\S+", host) and not host.startswith(("http:", "https:"))
        if value.startswith("unix:") or (fits and named):
            return True
    fuse.say(f"not watching: the address is {shown(value)}, wanted {wanted}")
    return False


def allowed(allow, tau_min, known, fuse):
    """(kinds that may change anything, joined by commas; tau_min or None). In doubt nothing is allowed."""
    if isinstance(allow, str):
        allow = [allow] if allow else []
    if not isinstance(allow, (collections.abc.Sequence, collections.abc.Set)) or isinstance(allow, (bytes, bytearray)):
        fuse.say(f"allow is {shown(allow)}, wanted a sequence of kinds, such as (\"{known[0]}\",); nothing is allowed")
        allow = []
    named = []
    for kind in allow:
        if isinstance(kind, str) and kind in known:
            named.append(kind)
        else:
            fuse.say(f"allow names {shown(kind)}; this client can apply only {', '.join(known)}")
    kinds = ",".join(kind for kind in known if kind in named)
    if tau_min is None:
        return kinds, None
    number = isinstance(tau_min, numbers.Real) and not isinstance(tau_min, bool)
    if number and math.isfinite(tau_min) and 0 <= tau_min <= _TAU_MAX:
        return kinds, float(tau_min)
    fuse.say(f"tau_min is {shown(tau_min)}, wanted a number from 0 to {_TAU_MAX:g}; "
             + ("nothing is allowed" if kinds else "taken as not given"))
    return "", None


def start_step(value, fuse):
    number = whole_number(value)
    if number is None:
        fuse.say(f"start_step is {shown(value)}, wanted a whole number within 2^53 of 0; steps are counted from 0")
    return number or 0


def optimizers(flat, fuse):
    """Those of them that are optimizers."""
    fit = []
    for one in flat:
        if callable(getattr(one, "step", None)) and isinstance(getattr(one, "param_groups", None), list):
            fit.append(one)
        else:
            fuse.say(f"optimizer is {shown(one)}, wanted one with step() and param_groups, or a list of them; left out")
    return fit


def schedule(value, fuse):
    """{field of gyro_model: value} of dict(kind=, peak=, warmup_steps=, total_steps=), any of which may be left out."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        fuse.say(f"schedule is {shown(value)}, wanted a dict with some of {', '.join(_SCHEDULE)}; taken as not given")
        return {}
    spec = {}
    for name, entry in value.items():
        wanted = _wrong_in_schedule(name, entry)
        if wanted:
            fuse.say(f"schedule[{shown(name)}] is {shown(entry)}, wanted {wanted}; taken as not given")
        else:
            spec[_SCHEDULE[name]] = entry if name in ("kind", "peak") else int(entry)
    return spec


def _wrong_in_schedule(name, value):
    """What was wanted instead, or ""."""
    if name not in _SCHEDULE:
        return f"only {', '.join(_SCHEDULE)}"
    if name == "kind":
        return "" if value in _SCHEDULES else f"one of {', '.join(_SCHEDULES)}"
    if name == "peak":
        number = isinstance(value, numbers.Real) and not isinstance(value, bool)
        return "" if number and 0 < value <= 1e6 else "a rate above 0"
    number = whole_number(value)
    return "" if number is not None and number >= 0 else "a whole number of steps"


def model_spec(value, fuse):
    """What watch() was told of the model, field by field; what is no field is said and left out."""
    from gyrostat import _abi

    if value is None:
        return {}
    if not isinstance(value, dict):
        fuse.say(f"model_spec is {shown(value)}, wanted a dict of fields of gyro_model; taken as not given")
        return {}
    numbers_of = {name for name, kind in _abi.Model._fields_ if kind is not _abi.ctypes.c_char_p} - {"struct_size"}
    names_of = {name for name, kind in _abi.Model._fields_ if kind is _abi.ctypes.c_char_p}
    spec = {}
    for name, entry in value.items():
        number = isinstance(entry, numbers.Real) and not isinstance(entry, bool)
        if (name in numbers_of and number) or (name in names_of and isinstance(entry, str)):
            spec[name] = entry
        else:
            fuse.say(f"model_spec[{shown(name)}] is {shown(entry)}, wanted a field of gyro_model with a value of its "
                     "type; left out")
    return spec
