"""Each rule fires on a small tree that breaks it, and on nothing in a small tree that does not."""
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

import habits
import layers
from source import File, Tree, cxx_functions

HEADER = "// What it is for.\n#pragma once\n"
GOOD = {
    "README.md": "# good\n",
    "CMakeLists.txt": "add_subdirectory(daemon)\n",
    "daemon/README.md": "| room | level | pure | what |\n|---|---|---|---|\n| base | L0 | no | x |\n"
                        "| stats | L2 | yes | x |\n| detect | L3 | yes | x |\n| policy | L3 | yes | x |\n"
                        "| engine | L4 | no | x |\n| ctl | L6 | no | x |\n",
    "daemon/CMakeLists.txt": "gyrostat_room(base\n  SRCS clock.cc\n  HDRS clock.h)\n"
                             "gyrostat_room(stats\n  SRCS mean.cc\n  HDRS mean.h)\n"
                             "gyrostat_room(detect\n  SRCS spike.cc\n  HDRS spike.h)\n"
                             "add_executable(gyrostatd main.cc)\n",
    "daemon/base/README.md": "# base\n",
    "daemon/base/clock.h": HEADER,
    "daemon/base/clock.cc": '#include "base/clock.h"\nauto Now() { return std::chrono::steady_clock::now(); }\n',
    "daemon/stats/README.md": "# stats\n",
    "daemon/stats/mean.h": HEADER + "#include <vector>\n",
    "daemon/stats/mean.cc": '#include "stats/mean.h"\n\nstatic const double kHalf = 0.5;\n',
    "daemon/detect/README.md": "# detect\n",
    "daemon/detect/spike.h": HEADER + '#include "stats/mean.h"\n',
    "daemon/detect/spike.cc": '#include "detect/spike.h"\n'
                              "int F() {\n  // rand() and TODO(#12) in a comment.\n  return 1'000;\n}\n",
    "daemon/main.cc": '#include <grpcpp/grpcpp.h>\n#include "detect/spike.h"\nint main() {}\n',
    "tests/README.md": "# tests\n",
    "tests/unit/CMakeLists.txt": "gyrostat_test(NAME unit SRCS a_test.cc)\n",
    "tests/unit/a_test.cc": "TEST(A, B) {}\n",
    "tests/go": "#!/usr/bin/env bash\nset -euo pipefail\n",
    "proto/README.md": "# proto\n",
    "proto/a.proto": "// A message.\nmessage A {\n  uint32 interval_ms = 1;\n  uint32 hidden_size = 2;\n}\n",
}


def make(root, changes=()):
    files = dict(GOOD)
    files.update(changes)
    for path, text in files.items():
        if text is None:
            continue
        target = root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
        target.chmod(0o755 if text.startswith("#!") else 0o644)
    return Tree(root)


def faults(tree):
    return [line for check in layers.CHECKS + habits.CHECKS for line in check(tree)]


def test_a_good_tree_has_no_fault(tmp_path):
    assert faults(make(tmp_path)) == []


BAD = {
    "a peer's header": ({"daemon/detect/spike.h": HEADER + '#include "policy/x.h"\n'},
                        'daemon/detect/spike.h:3: layers: detect (L3) includes "policy/x.h" (L3)'),
    "an upper room's header": ({"daemon/stats/mean.h": HEADER + '#include "detect/spike.h"\n'},
                               'stats (L2) includes "detect/spike.h" (L3)'),
    "a library in the wrong room": ({"daemon/detect/spike.cc": "#include <grpcpp/grpcpp.h>\n"},
                                    "layers: grpcpp/grpcpp.h is named here, wanted only in rpc"),
    "spdlog outside log.cc": (
        {"daemon/base/clock.cc": "#include <spdlog/spdlog.h>\n"},
        "wanted only in daemon/base/log.cc"),
    "a library nobody knows": (
        {"daemon/base/clock.cc": "#include <boost/asio.hpp>\n"},
        "belongs to no room and no known library"),
    "no table": ({"daemon/README.md": "# daemon\n"}, "no table of rooms"),
    "a room without table row": ({"daemon/extra/x.h": HEADER, "daemon/extra/README.md": "x\n"},
                                 "daemon/extra/: layers: the room is not in the table"),
    "a room without README": ({"daemon/stats/README.md": None}, "daemon/stats/: readme"),
    "a clock in a pure room": (
        {"daemon/stats/mean.h": HEADER + "#include <chrono>\n"},
        "pure: a pure room includes chrono"),
    "a system header in a pure room": ({"daemon/stats/mean.h": HEADER + "#include <unistd.h>\n"}, "includes unistd.h"),
    "a lock in a pure room": ({"daemon/detect/spike.h": HEADER + '#include "base/mutex.h"\n'}, "includes base/mutex.h"),
    "the environment in a pure room": ({"daemon/stats/mean.cc": 'auto x = std::getenv("A");\n'}, "uses getenv("),
    "state in a pure room": (
        {"daemon/stats/mean.cc": "void F() {\n  static int calls = 0;\n}\n"},
        "mutable static state"),
    "a lock in the pure part of engine": (
        {"daemon/engine/run.h": HEADER + "#include <mutex>\n", "daemon/engine/README.md": "x"},
                                          "daemon/engine/run.h:3: pure"),
    "a test that nobody runs": ({"tests/unit/lost_test.cc": "TEST(A, B) {}\n"},
                                "tests/unit/lost_test.cc:1: registered: no CMakeLists.txt names it, so no test is run"),
    "a test registered in a comment": ({"tests/unit/lost_test.cc": "x\n",
                                        "tests/unit/CMakeLists.txt": "gyrostat_test(SRCS a_test.cc)  # lost_test.cc\n"},
                                       "lost_test.cc:1: registered"),
    "a Python test that nobody runs": (
        {"tests/unit/lost_test.py": "def test_a(): pass\n"},
        "lost_test.py:1: registered"),
    "a fuzzer that nobody builds": ({"tests/fuzz/a_fuzz.cc": "int x;\n"}, "a_fuzz.cc:1: registered"),
    "a source that nobody builds": ({"daemon/stats/dead.cc": "int x;\n", "daemon/stats/dead.h": HEADER},
                                    "dead.cc:1: registered: no CMakeLists.txt names it, so no source is built"),
    "a source without header": (
        {"daemon/stats/mean.h": None, "daemon/detect/spike.h": HEADER},
        "mean.cc:1: twin: no mean.h"),
    "a header without guard": ({"daemon/base/clock.h": "// Time.\n"}, "clock.h:1: header: no #pragma once"),
    "a header without words": ({"daemon/base/clock.h": "#pragma once\n"}, "clock.h:1: header: the first lines say"),
    "a long file": ({"daemon/stats/mean.cc": "int x;\n" * 501}, "mean.cc:1: size: 501 lines, at most 500"),
    "a long line": ({"daemon/stats/mean.cc": "// " + "x" * 118 + "\n"}, "mean.cc:1: size: 121 columns, at most 120"),
    "a long function": ({"daemon/stats/mean.cc": "namespace a {\nint F(int x) {\n" + "  ++x;\n" * 69 + "}\n}\n"},
                        "mean.cc:2: size: F has 71 lines, at most 70"),
    "a long method": ({"daemon/stats/mean.h": HEADER + "class A {\n  void F() const {\n" + "x;\n" * 69 + "  }\n};\n"},
                      "mean.h:4: size: F has 71 lines"),
    "a long Python function": ({"tests/long.py": "def f():\n" + "    pass\n" * 70}, "long.py:1: size: f has 71 lines"),
    "a wire number without unit": ({"proto/a.proto": "message A {\n  uint32 interval = 1;\n}\n"},
                                   "a.proto:2: units: interval has a dimension, its name no unit"),
    "a wire size without unit": (
        {"proto/a.proto": "message A {\n  uint64 queue_capacity = 1;\n}\n"},
        "units: queue_capacity"),
    "a config number without unit": ({"deploy/README.md": "x\n", "deploy/g.yaml": "a:\n  timeout: 5\n"},
                                     "g.yaml:2: units: timeout"),
    "a metric in milliseconds": ({"daemon/telemetry/c.h": HEADER + 'auto x = "gyrostat_rpc_latency_ms";\n'},
                                 "units: gyrostat_rpc_latency_ms is not in a base unit"),
    "the time asked for": (
        {"daemon/detect/spike.cc": "auto t = std::chrono::system_clock::now();\n"},
        "banned: asks for the time"),
    "the wall clock in base": ({"daemon/base/clock.h": HEADER + "auto t = std::chrono::system_clock::now();\n"},
                               "clock.h:3: banned: asks for the time"),
    "a test that sleeps": (
        {"tests/unit/a_test.cc": "void F() { std::this_thread::sleep_for(x); }\n"},
        "a_test.cc:1: banned: sleeps"),
    "using namespace": ({"tests/unit/a_test.cc": "using namespace std;\n"}, "banned: `using namespace`"),
    "rand()": ({"tests/unit/a_test.cc": "int x = rand();\n"}, "banned: rand()"),
    "a throw": ({"daemon/base/clock.h": HEADER + "void F() { throw 1; }\n"}, "banned: throws"),
    "a CHECK in the client": (
        {"client/README.md": "x\n", "client/src/a.h": HEADER + "void F() { GYROSTAT_CHECK(1); }\n"},
                              "client/src/a.h:3: banned: the client never aborts"),
    "a CHECK that the client includes": ({"client/README.md": "x\n",
                                          "client/src/a.h": HEADER + '#include "stats/mean.h"\n',
                                          "daemon/stats/mean.h": HEADER + '#include "base/check.h"\n',
                                          "daemon/base/check.h": HEADER},
                                         "the client reaches base/check.h through stats/mean.h"),
    "a room that is not the client's": (
        {"client/README.md": "x\n", "client/src/a.h": HEADER + '#include "detect/spike.h"\n'},
                                        "the client reaches detect/spike.h"),
    "an open end": (
        {"daemon/base/clock.h": HEADER + "// TO" + "DO: think\n"},
        "clock.h:3: open: TODO without an issue"),
    "an open end in a README": ({"daemon/base/README.md": "FIX" + "ME\n"}, "open: FIXME without an issue"),
    "a path of one machine": (
        {"tests/go": "#!/usr/bin/env bash\nset -euo pipefail\nls /work/x\n"},
        "tests/go:3: machine: names the path /work/x"),
    "a registry": (
        {"README.md": "from https://pypi.org/simple\n"},
        "README.md:1: machine: names the registry pypi.org"),
    "a glob": ({"CMakeLists.txt": "file(GLOB x *.cc)\n"}, "CMakeLists.txt:1: cmake: file(GLOB)"),
    "a directory-wide flag": ({"CMakeLists.txt": "add_compile_options(-O3)\n"}, "cmake: a directory-wide flag"),
    "a script that goes on after errors": (
        {"tests/go": "#!/usr/bin/env bash\nls\n"},
        "tests/go:1: script: no `set -euo pipefail`"),
    "a folder without README": ({"tests/README.md": None}, "tests/: readme"),
}


@pytest.mark.parametrize("name", BAD)
def test_the_rule_fires_and_only_that_one(tmp_path, name):
    changes, expected = BAD[name]
    found = faults(make(tmp_path, changes))
    assert any(expected in line for line in found), found
    strangers = [line for line in found if line.split(": ")[1] != expected_rule(found, expected)]
    assert not strangers or name in MANY, strangers


# Changes that rightly break two rules at once.
MANY = {"no table", "a library nobody knows", "a lock in a pure room", "a source without header",
        "a CHECK that the client includes", "a room without table row", "a metric in milliseconds",
        "the lock in the pure part of engine", "a lock in the pure part of engine"}


def expected_rule(found, expected):
    return next(line for line in found if expected in line).split(": ")[1]


def test_a_script_must_be_executable_and_the_other_way_round(tmp_path):
    tree = make(tmp_path)
    (tmp_path / "tests/go").chmod(0o644)
    (tmp_path / "README.md").chmod(0o755)
    found = faults(Tree(tmp_path))
    assert found == ["README.md:1: script: is executable and does not start with #!",
                     "tests/go:1: script: starts with #! and is not executable"]


def test_build_folders_and_binaries_are_not_looked_at(tmp_path):
    make(tmp_path, {"build/dev/x.cc": "using namespace std;\n"})
    (tmp_path / "tests/blob").write_bytes(b"\xff\xfe")
    assert faults(Tree(tmp_path)) == []


FUNCTIONS = '''
#define WRAP(x) \\
  do { x; } while (0)
namespace a {
struct S { int x = 0; };
enum class E { kA };
const int kTable[] = {1, 2};
const auto kLambda = [](int x) { return x; };
const char* kRaw = R"(void Fake() {)";
class C : public B {
 public:
  C() : x_{1} {}
  int Get() const { return x_; }  // void Comment() {
  template <class T>
  void Each(T f) {
    for (const auto& x : all()) { f(x); }
  }
};
std::string Long(int a,
                 int b) {
  if (a) { return "}"; }
  return "{";
}
}  // namespace a
extern "C" {
int gyro_open(void) { return '}'; }
}
'''


def test_functions_are_found_by_their_braces():
    found = {name: (first, last) for name, first, last in cxx_functions(File("a.cc", FUNCTIONS))}
    assert found["Long"] == (19, 23)
    assert found["Get"] == (13, 13)
    assert found["Each"] == (14, 17)
    assert found["gyro_open"] == (26, 26)
    assert not {"Fake", "Comment", "WRAP"} & set(found)
