"""Sizes, registration, twins, units, banned words: what a reviewer would otherwise have to look for by hand."""
import re

from source import cxx_functions, python_functions

LINES_MAX = 500
FUNCTION_LINES_MAX = 70
COLUMNS_MAX = 120

# A .cc without a .h of its own, and why.
TWINLESS = {
    "daemon/model/tokens.cc": "the tables behind the Token functions of several headers",
    "client/src/gyrostat.cc": "its header is the public gyrostat.h",
    "tests/support/pacing.cc": "stands in for a function of the public gyrostat.h",
}
TEST_FILE = re.compile(r"(_test\.(cc|c|py)|_fuzz\.cc|_bench\.cc)$|(^|/)test_[^/]*\.py$")

# Words that make a number a time or a size, and the endings that say in which unit.
TIME_WORDS = re.compile(r"(^|_)(time|duration|interval|timeout|delay|age|latency|ttl|cooldown|period|tick)(_|$)")
SIZE_WORDS = re.compile(r"(^|_)(capacity|buffer|memory|disk|retention)(_|$)")
UNITS = re.compile(r"_(s|ms|us|ns|seconds|milliseconds|microseconds|minutes|hours|days|at|bytes|mib|percent|ratio|"
                   r"steps|boundaries|reports|records|events|samples|entries|runs|total|max|min)$")
METRIC_UNIT = re.compile(r"_(ms|us|ns|milliseconds|microseconds|minutes|hours|kb|mb|mib|kib)(_|$)")

BANNED_CODE = [
    (re.compile(r"\b(system|steady|high_resolution)_clock::now\b|\b(clock_gettime|gettimeofday)\s*\(|"
                r"\btime\s*\(\s*(0|NULL|nullptr)?\s*\)"),
     "asks for the time; take a base::Clock, or `now` as an argument", ("daemon/", "tests/")),
    (re.compile(r"\b(sleep_for|sleep_until|usleep|nanosleep)\s*\(|(?<![\w.:])sleep\s*\("),
     "sleeps; wait for a condition, with a deadline", ("daemon/", "tests/", "client/")),
    (re.compile(r"\busing\s+namespace\b"), "`using namespace`", ("",)),
    (re.compile(r"(?<![\w.])s?rand\s*\("), "rand() is not reproducible", ("",)),
    (re.compile(r"\bthrow\b(?!\s*\()"), "throws; return a status", ("daemon/", "client/")),
    (re.compile(r"\bGYROSTAT_CHECK\b"), "the client never aborts", ("client/",)),
]
# Where a banned call is right: pattern of the message → files.
PERMITTED = {
    "asks for the time": [
        "daemon/base/clock.cc",
        "tests/unit/client/hot_path_test.cc",  # Waits with a deadline where no system call may happen.
    ],
    "sleeps": [
        "client/src/process.cc",  # At exit, when only a flag tells that the senders are gone.
        # In place of a forward and a backward pass.
        "client/examples/loop.c", "client/examples/loop.cc", "client/examples/ranks.cc",
    ],
    "throws": ["daemon/ctl/cli.cc"],  # CLI11's way out of a callback, caught in the same file.
}
# Waits in base/ and in the fakes of tests compute their deadlines themselves; benches measure.
CLOCK_USERS = ("daemon/base/", "tests/unit/base/", "tests/support/", "tests/bench/")
BASE_WAIT = re.compile(r"\bsteady_clock::now\b|\bclock_gettime\b")

OPEN_END = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b(?!\(#\d+\))")
MACHINE_PATH = re.compile(r"(?<![\w.$}/])/(work|root|home/[a-z]\w+)[/\w]*")
REGISTRY = re.compile(r"\b(pypi\.org|pythonhosted\.org|registry\.npmjs\.org|crates\.io|proxy\.golang\.org|ghcr\.io|"
                      r"docker\.io)\b")


def code_files(tree):
    return [file for file in tree.files.values() if file.is_code]


def check_sizes(tree):
    found = []
    for file in code_files(tree):
        if len(file.lines) > LINES_MAX:
            found.append(f"{file.path}:1: size: {len(file.lines)} lines, at most {LINES_MAX}: split at the seam of "
                         "questions")
        for number, line in enumerate(file.lines, 1):
            if len(line) > COLUMNS_MAX:
                found.append(f"{file.path}:{number}: size: {len(line)} columns, at most {COLUMNS_MAX}")
        functions = cxx_functions(file) if file.is_cxx else python_functions(file) if file.is_python else []
        for name, first, last in functions:
            if last - first + 1 > FUNCTION_LINES_MAX:
                found.append(f"{file.path}:{first}: size: {name} has {last - first + 1} lines, at most "
                             f"{FUNCTION_LINES_MAX}")
    return found


def check_registered(tree):
    """Every source is built and every test is run: a CMakeLists.txt in its folder or above names it."""
    found = []
    for file in tree.under("daemon/", "client/", "tests/"):
        is_test = TEST_FILE.search(file.path) is not None and file.path.startswith("tests/")
        if not is_test and file.suffix not in (".cc", ".c"):
            continue
        if file.path.startswith("tests/fuzz/corpus/"):
            continue
        parts = file.path.split("/")
        named = False
        for depth in range(len(parts) - 1, -1, -1):
            cmake = "/".join(parts[:depth] + ["CMakeLists.txt"])
            relative = re.escape("/".join(parts[depth:]))
            in_folder = re.escape("/".join(parts[depth + 1:]))
            pattern = rf"(?<![\w./]){relative}(?![\w.])"
            code = "\n".join(line for _, line in tree.files[cmake].code_lines()) if cmake in tree.files else ""
            # gyrostat_room() prepends the room's folder to each source.
            in_room = depth < len(parts) - 1 and re.search(
                rf"gyrostat_room\({re.escape(parts[depth])}\b[^)]*(?<![\w./]){in_folder}(?![\w.])", code)
            if re.search(pattern, code) or in_room:
                named = True
                break
        if not named:
            what = "test is run" if is_test else "source is built"
            found.append(f"{file.path}:1: registered: no CMakeLists.txt names it, so no {what}")
    return found


def check_twins(tree):
    found = []
    for file in tree.under("daemon/", "client/src/", "tests/support/"):
        program = re.search(r"_(test|fuzz|bench)\.cc$", file.name) or re.search(r"^int main\(", file.text, re.M)
        if file.suffix != ".cc" or program or file.path in TWINLESS:
            continue
        if file.path[:-3] + ".h" not in tree.files:
            found.append(f"{file.path}:1: twin: no {file.name[:-3]}.h beside it")
    return found


def check_headers(tree):
    found = []
    for file in tree.files.values():
        if file.suffix != ".h":
            continue
        if "#pragma once" not in file.text and not re.search(r"#ifndef (\w+)\n#define \1\n", file.text):
            found.append(f"{file.path}:1: header: no #pragma once")
        if not re.match(r"\s*(//|/\*)", file.text):
            found.append(f"{file.path}:1: header: the first lines say what it is for")
    return found


def lacks_unit(name):
    return (TIME_WORDS.search(name) or SIZE_WORDS.search(name)) and not UNITS.search(name)


def check_units(tree):
    """A number with a dimension says its unit where it leaves the program: wire, configuration, metrics."""
    found = []
    for file in tree.under("proto/"):
        for number, line in file.code_lines():
            match = re.match(r"\s*(?:optional |repeated )?(?:double|float|s?int\d+|uint\d+) (\w+) = \d+", line)
            if match and lacks_unit(match.group(1)):
                found.append(f"{file.path}:{number}: units: {match.group(1)} has a dimension, its name no unit")
    for file in tree.under("deploy/"):
        if file.suffix != ".yaml" or "/helm/" in file.path:
            continue
        for number, line in enumerate(file.lines, 1):
            match = re.match(r"\s*#?\s*(\w+):\s*[-+.\d]+\s*(#.*)?$", line)
            if match and lacks_unit(match.group(1)):
                found.append(f"{file.path}:{number}: units: {match.group(1)} has a dimension, its name no unit")
    for file in tree.under("daemon/telemetry/"):
        for number, line in enumerate(file.lines, 1):
            for name in re.findall(r'"(gyrostat_\w+)"', line):
                if METRIC_UNIT.search(name):
                    found.append(f"{file.path}:{number}: units: {name} is not in a base unit (seconds, bytes)")
    return found


def check_banned_calls(tree):
    found = []
    for file in tree.files.values():
        if not file.is_cxx:
            continue
        for number, line in file.code_lines():
            for pattern, message, prefixes in BANNED_CODE:
                if not file.path.startswith(prefixes) or not pattern.search(line):
                    continue
                if file.path in PERMITTED.get(message.split(";")[0], []):
                    continue
                if file.path.startswith(CLOCK_USERS) and BASE_WAIT.search(line):
                    continue
                found.append(f"{file.path}:{number}: banned: {message}")
    return found


def check_words(tree):
    """No open ends without an issue, no machine of ours, no registry."""
    found = []
    for file in tree.files.values():
        if file.path.startswith("tests/tidy/") or "/corpus/" in file.path or file.name == "LICENSE":
            continue
        for number, line in enumerate(file.lines, 1):
            where = f"{file.path}:{number}"
            word = OPEN_END.search(line)
            if word and (file.is_code or file.suffix == ".md"):
                found.append(f"{where}: open: {word.group(1)} without an issue; wanted {word.group(1)}(#N), or the "
                             "thing done")
            if MACHINE_PATH.search(line):
                found.append(f"{where}: machine: names the path {MACHINE_PATH.search(line).group(0)} of one machine")
            if REGISTRY.search(line):
                found.append(f"{where}: machine: names the registry {REGISTRY.search(line).group(0)}")
    return found


def check_cmake(tree):
    found = []
    for file in tree.files.values():
        if not file.is_cmake:
            continue
        for number, line in file.code_lines():
            if re.search(r"\bfile\s*\(\s*GLOB", line):
                found.append(f"{file.path}:{number}: cmake: file(GLOB) hides what is built; list the files")
            if re.search(r"\b(include_directories|link_libraries|add_definitions|add_compile_options)\s*\(", line) and \
                    not re.search(r"\btarget_\w+\s*\(", line):
                found.append(f"{file.path}:{number}: cmake: a directory-wide flag; set it on a target")
    return found


def check_scripts(tree):
    """A file with a #! can be run, and one that can be run says with what."""
    found = []
    for file in tree.files.values():
        shebang = file.text.startswith("#!")
        if shebang and not file.executable:
            found.append(f"{file.path}:1: script: starts with #! and is not executable")
        if file.executable and not shebang:
            found.append(f"{file.path}:1: script: is executable and does not start with #!")
        if file.is_shell and not re.search(r"^set -euo pipefail$", file.text, re.M):
            found.append(f"{file.path}:1: script: no `set -euo pipefail`")
    return found


def check_readmes(tree):
    found = []
    for folder in ("", "daemon/", "proto/", "client/", "deploy/", "tests/", "dashboards/"):
        if tree.under(folder) and folder + "README.md" not in tree.files:
            found.append(f"{folder or './'}: readme: the folder has no README.md")
    return found


CHECKS = [check_sizes, check_registered, check_twins, check_headers, check_units, check_banned_calls, check_words,
          check_cmake, check_scripts, check_readmes]
